"""Classifying as a user asks for it: tables, folders, digits beside the evaluation, mistakes."""

import csv
import dataclasses
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from small_runs import tiny

import wessl
from wessl.cli import main
from wessl.data.labelled.splits import few_shot_draws
from wessl.data.sources.open import open_source
from wessl.errors import UserError
from wessl.export.calibration import Calibration, Half

TRAIN, TEST = "builtin://digits/train", "builtin://digits/test"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("classify")


@pytest.fixture(scope="module")
def run(home):
    return wessl.pretrain(TEST, home / "run", "dino-star-ent", **tiny())


@pytest.fixture(scope="module")
def both(home):
    """Training and test digits in one file without labels, the training digits first."""
    path = home / "both.npz"
    np.savez(path, images=np.concatenate([open_source(part).images for part in (TRAIN, TEST)]))
    return path


@pytest.fixture
def folder(tmp_path):
    """Ten digits of each kind as files whose names tell nothing: 000.png to 099.png."""
    source = open_source(TEST)
    order = np.argsort(source.labels, kind="stable").reshape(10, 50)[:, :10].T.ravel()
    (tmp_path / "photos").mkdir()
    for i, number in enumerate(order):
        Image.fromarray(source.read(number)[:, :, 0]).save(tmp_path / "photos" / f"{i:03d}.png")
    return tmp_path / "photos"


def table(tmp_path, shots):
    """Labels of the first pictures: picture i shows the digit i % 10."""
    path = tmp_path / "labels.csv"
    path.write_text("".join(f"{i:03d}.png,d{i % 10}\n" for i in range(10 * shots)))
    return path


def command(capsys, *words):
    """Exit code and what was printed, out and err."""
    with pytest.raises(SystemExit) as left:
        main(["classify", *map(str, words)])
    return left.value.code, *capsys.readouterr()


@pytest.mark.parametrize("shots", [1, 2, 5])
def test_the_labels_of_an_evaluation_give_its_accuracy(run, both, tmp_path, shots):
    protocol = f"{shots}-shot"
    measured = wessl.evaluate(run, TRAIN, TEST, [protocol], draws=2, baselines=False, device="cpu")[
        "rows"
    ][0]["results"][protocol]
    source, truth = open_source(TRAIN), open_source(TEST).labels
    labels = torch.tensor(source.labels)
    for i, draw in enumerate(few_shot_draws(labels, shots, 2)):
        path = tmp_path / "labels.csv"
        lines = [f"{both}[{row}],{labels[row]}\n" for row in draw.tolist()]
        path.write_text("path,label\n" + "".join(lines))
        found = wessl.classify(run, both, path, device="cpu")
        assert len(found.paths) == 1797 - 10 * shots
        guessed = np.array(found.labels[-500:], int)  # the test digits are last
        assert (guessed == truth).mean() == pytest.approx(measured["per_draw"][i], abs=0.0021)
        assert found.classifier.strength == measured["strength"][i]


def test_the_command_guesses_every_other_picture(run, folder, tmp_path, capsys):
    out = tmp_path / "out.csv"
    words = ["--labels", table(tmp_path, 3), "-o", out, "--suggest", 4, "--device", "cpu"]
    code, printed, _ = command(capsys, run.path, folder, *words)
    assert code == 0
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == [f"{i:03d}.png" for i in range(30, 100)]
    for row in rows:
        first, second = float(row["confidence"]), float(row["second_confidence"])
        assert 1 >= first >= second >= 0
        assert row["label"] != row["second"]
    right = np.mean([row["label"] == f"d{int(row['path'][:3]) % 10}" for row in rows])
    assert right > 0.4  # one in ten by chance; the encoder saw one epoch
    ranked = {row["worth_labelling"]: row for row in rows if row["worth_labelling"]}
    assert sorted(ranked) == ["1", "2", "3", "4"]
    assert "30 labelled pictures of 10 classes; 70 others to guess" in printed
    assert "how good: about " in printed
    assert "a third of the labels held out at a time this tends to be low" in printed
    assert "confidences: fitted to the 30 held-out labels (temperature" in printed
    assert "of the surer half" in printed
    assert printed.count("true if the labelled pictures are like the others") == 2
    assert printed.index(ranked["1"]["path"]) < printed.index(ranked["2"]["path"])
    assert f"all 70 guesses: {out}" in printed


def test_labels_in_latin_1_are_guessed_in_utf_8(run, folder, tmp_path):
    path, out = table(tmp_path, 2), tmp_path / "out.csv"
    path.write_bytes(path.read_text().replace(",d", ",café ").encode("latin-1"))
    found = wessl.classify(run, folder, path, out, device="cpu")
    with out.open(encoding="utf-8") as file:
        guessed = {row["label"] for row in csv.DictReader(file)}
    assert guessed == set(found.labels) <= {f"café {digit}" for digit in range(10)}


def test_one_label_a_class_says_what_it_cannot_know(run, folder, tmp_path):
    found = wessl.classify(run, folder, table(tmp_path, 1), device="cpu")
    assert "how good: cannot be estimated, as every class has one label and none" in found.summary
    said = "confidences: not calibrated, and how good they are is not known, as no label could be"
    assert said in found.summary
    assert found.classifier.calibration is None
    assert "few labels: 1 in each class" in found.summary
    assert "it stands for many that are like no labelled one" in found.summary
    assert len(found.worth_labelling) == len(set(found.worth_labelling)) == 10


@pytest.mark.parametrize(
    ("surer", "rest", "said"),
    [
        ((0.97, 0.85), (0.50, 0.70), "too high where it is surest, too low elsewhere"),
        ((0.80, 0.98), (0.70, 0.50), "too low where it is surest, too high elsewhere"),
        ((0.97, 0.85), (0.70, 0.50), "too high"),
        ((0.80, 0.98), (0.50, 0.70), "too low"),
        ((0.97, 0.96), (0.50, 0.70), "too low"),
        ((0.97, 0.80), (0.50, 0.52), "too high"),
    ],
)
def test_confidences_that_err_both_ways_are_said_to(run, folder, tmp_path, surer, rest, said):
    found = wessl.classify(run, folder, table(tmp_path, 3), device="cpu")
    halves = [Half(*shares, of=100, chance=0.08) for shares in (surer, rest)]
    known = dataclasses.replace(found.classifier, calibration=Calibration(*halves))
    words = dataclasses.replace(found, classifier=known).summary
    assert f": they are {said}, so take them as an order, not as probabilities" in words


def test_labels_that_say_nothing_of_the_pictures_are_no_better_than_guessing(run, folder, tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("".join(f"{i:03d}.png,c{(i // 10 + i) % 5}\n" for i in range(50)))
    found = wessl.classify(run, folder, path, device="cpu")
    assert found.classifier.estimate.accuracy < 0.25
    assert "no better than guessing (20 of 100 with 5 classes): more labels" in found.summary
    assert "confidences: of no use, as the guesses are no better than chance" in found.summary
    assert "it stands for many that are like no labelled one" in found.summary


def test_a_few_classes_with_two_labels_are_said_to_be_held_out(run, folder, tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("".join(f"{i:03d}.png,d{i % 10}\n" for i in range(13)))
    few = wessl.classify(run, folder, path, device="cpu")
    assert "most classes have one label, and the 6 that can be held out" in few.summary
    assert "is not known, as only 6 labels could be held out (20 are needed)" in few.summary
    path.write_text("".join(f"{i:03d}.png,c{i % 30:02d}\n" for i in range(42)))
    enough = wessl.classify(run, folder, path, device="cpu")
    assert enough.classifier.estimate is None
    assert "most classes have one label, and the 24 that can be held out" in enough.summary
    assert "fitted to the 24 held-out labels" in enough.summary
    assert "nothing is known of the classes with one label" in enough.summary
    for found in (few, enough):
        assert "none can be held out" not in found.summary


def test_classes_with_few_labels_and_unreadable_pictures_are_named(run, folder, tmp_path):
    (folder / "050.png").write_bytes(b"no")
    path = table(tmp_path, 3)
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    found = wessl.classify(run, folder, path, device="cpu")
    assert "few labels: d9 (2)" in found.summary
    assert "1 unreadable picture left out (050.png: " in found.summary
    assert "050.png" not in found.paths
    assert len(found.paths) == 70


def test_labels_one_letter_apart_are_asked_about(run, folder, tmp_path):
    labels = tmp_path / "labels.csv"
    rows = [f"{i:03d}.png,{'nought' if i % 10 == 0 else 'figure'}\n" for i in range(20)]
    labels.write_text("".join([*rows, "020.png,noughht\n", "021.png,figures\n"]))
    words = wessl.classify(run, folder, labels, device="cpu").summary
    asked = [line for line in words.splitlines() if "differ by one letter" in line]
    pairs = ["'figure' and 'figures'", "'noughht' and 'nought'"]
    assert [line.split("labels ")[1].split(" differ")[0] for line in asked] == pairs


def test_labelled_pictures_may_be_class_folders_elsewhere(run, folder, tmp_path):
    for i in range(20):
        place = tmp_path / "labelled" / f"d{i % 10}"
        place.mkdir(parents=True, exist_ok=True)
        (folder / f"{i:03d}.png").rename(place / f"{i}.png")
    found = wessl.classify(run, folder, tmp_path / "labelled", device="cpu")
    assert len(found.paths) == 80
    assert found.classifier.estimate.of == 20
    rows = "".join(f"labelled/d{i % 10}/{i}.png,d{i % 10}\n" for i in range(20))
    (tmp_path / "same.csv").write_text(rows)
    same = wessl.classify(run, folder, tmp_path / "same.csv", device="cpu")
    assert same.labels == found.labels


@pytest.mark.parametrize("apart", [True, False])
def test_a_broken_labelled_picture_is_left_out_with_a_word(run, folder, tmp_path, apart):
    """Whether labelled pictures lie elsewhere, or in DATA itself as another folder's class."""
    labelled = (tmp_path if apart else folder) / "labelled"
    for i in range(20):
        place = labelled / f"d{i % 10}"
        place.mkdir(parents=True, exist_ok=True)
        (folder / f"{i:03d}.png").rename(place / f"{i}.png")
    (labelled / "d3" / "3.png").write_bytes(b"no")
    found = wessl.classify(run, folder, labelled, tmp_path / "out.csv", device="cpu")
    said = f"--labels {labelled}: {'' if apart else 'labelled/'}d3/3.png cannot be decoded (no pict"
    assert found.summary.startswith(said)
    assert "19 labelled pictures of 10 classes; 80 others to guess" in found.summary
    (labelled / "d3" / "3.png").unlink()
    same = wessl.classify(run, folder, labelled, device="cpu")
    assert (same.labels, same.confidence) == (found.labels, found.confidence)
    (labelled / "d3" / "13.png").write_bytes(b"")
    with pytest.raises(
        UserError, match=r"an empty file\), and no other picture labelled 'd3' can be"
    ):
        wessl.classify(run, folder, labelled, device="cpu")


def test_more_labels_do_not_compute_the_features_again(run, folder, tmp_path):
    wessl.classify(run, folder, table(tmp_path, 2), device="cpu")
    kept = {path: path.stat().st_mtime_ns for path in run.path.rglob("stream-*/features.npy")}
    wessl.classify(run, folder, table(tmp_path, 3), device="cpu")
    again = {path: path.stat().st_mtime_ns for path in run.path.rglob("stream-*/features.npy")}
    assert again == kept


def test_features_of_an_encoder_that_changed_replace_the_old_ones(run, folder, tmp_path):
    own = wessl.Run(shutil.copytree(run.path, tmp_path / "run"))
    shutil.rmtree(own.path / "features", ignore_errors=True)
    wessl.classify(own, folder, table(tmp_path, 2), device="cpu")
    (kept,) = own.path.rglob("stream-*/features.npy")
    before = np.load(kept)
    weights, description = own.load_encoder()
    own.save_encoder({name: -tensor for name, tensor in weights.items()}, description)
    wessl.classify(own, folder, table(tmp_path, 2), device="cpu")
    (again,) = own.path.rglob("stream-*/features.npy")
    assert again == kept
    assert not np.allclose(np.load(again), before)


def test_features_of_a_folder_that_changed_replace_the_old_ones(run, folder, tmp_path):
    own = wessl.Run(shutil.copytree(run.path, tmp_path / "run"))

    def kept():
        return {path: path.stat().st_mtime_ns for path in own.path.rglob("stream-*/features.npy")}

    shutil.rmtree(own.path / "features", ignore_errors=True)
    shutil.copytree(folder, tmp_path / "other")
    wessl.classify(own, tmp_path / "other", table(tmp_path, 2), device="cpu")
    others = kept()
    assert len(wessl.classify(own, folder, table(tmp_path, 2), device="cpu").paths) == 80
    for i in range(90, 100):
        (folder / f"{i:03d}.png").unlink()
    before = kept()
    found = wessl.classify(own, folder, table(tmp_path, 2), device="cpu")
    assert found.paths == [f"{i:03d}.png" for i in range(20, 90)]
    assert kept().keys() == before.keys()
    assert len(kept()) == 2
    assert others.items() <= kept().items()


@pytest.mark.parametrize(
    ("text", "more", "said"),
    [
        ("000.png,a\n777.png,b", [], "line 2: 777.png is no picture"),
        ("000.png,a\n001.png,a", [], "only one class"),
        ("000.png,a\n001.png,b\n000.png,b", [], "line 3: 000.png is 'b' here and 'a' in"),
        ("", [], "is empty"),
        ("000.png,a\n001.png,b", ["--classes", "a", "c"], "label 'b' is not among --classes a, c"),
        ("000.png,a\n001.png,b", ["--suggest", "-1"], "--suggest must be 0 or more"),
        ("000.png,a\nbad.png,b", [], "line 2: bad.png cannot be decoded"),
        ("".join(f"{i:03d}.png,{i % 2}\n" for i in range(100)), [], "there is none to guess"),
    ],
)
def test_wrong_labels_are_told_and_nothing_is_written(
    run, folder, tmp_path, capsys, text, more, said
):
    if "bad" in text:
        (folder / "bad.png").write_bytes(b"no")
    (tmp_path / "labels.csv").write_text(text)
    words = ["--labels", tmp_path / "labels.csv", "-o", tmp_path / "out.csv", "--device", "cpu"]
    code, _, err = command(capsys, run.path, folder, *words, *more)
    assert code == 2
    assert said in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["labels.csv", "photos"]


def test_an_output_that_cannot_be_written_is_told_and_the_old_one_stays(run, folder, tmp_path):
    labels = table(tmp_path, 2)
    for out, said in ((tmp_path / "no" / "out.csv", "does not exist"), (tmp_path / "o", "end in")):
        with pytest.raises(UserError, match=said):
            wessl.classify(run, folder, labels, out)
    wessl.classify(run, folder, labels, tmp_path / "out.csv", device="cpu")
    before = (tmp_path / "out.csv").read_text()
    with pytest.raises(UserError, match=r"out\.csv exists; name another file.*--overwrite"):
        wessl.classify(run, folder, labels, tmp_path / "out.csv", device="cpu")
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1000, -1))"
    words = ["classify", run.path, folder, "--labels", labels, "-o", tmp_path / "out.csv"]
    words.append("--overwrite")
    start = f"{limit}; from wessl.cli import main; import sys; main(sys.argv[1:])"
    done = subprocess.run(
        [sys.executable, "-c", start, *map(str, words), "--device", "cpu"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "out.csv: cannot be written" in done.stderr
    assert (tmp_path / "out.csv").read_text() == before
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("data", "labels", "out", "said"),
    [
        ("photos", "labels.csv", "labels.csv", "-o labels.csv is --labels itself"),
        ("photos", "labels.csv", "photos/../labels.csv", "is --labels itself"),
        ("photos", "link.csv", "labels.csv", "is --labels itself"),
        ("photos", "labels.csv", "link.csv", "is --labels itself"),
        ("list.csv", "labels.csv", "list.csv", "-o list.csv is DATA itself"),
        ("photos", "labels.csv", "picture.csv", "-o picture.csv is a picture"),
        ("photos", "elsewhere.csv", "odd.csv", "-o odd.csv is a picture"),
    ],
)
def test_what_is_read_is_never_written_over(
    run, folder, tmp_path, monkeypatch, capsys, data, labels, out, said
):
    monkeypatch.chdir(tmp_path)
    lines = table(tmp_path, 2).read_text()
    (tmp_path / "link.csv").symlink_to("labels.csv")
    (tmp_path / "picture.csv").symlink_to("photos/007.png")
    (tmp_path / "odd.csv").write_bytes((folder / "003.png").read_bytes())
    (tmp_path / "elsewhere.csv").write_text(lines + "odd.csv,d3\n")
    (tmp_path / "list.csv").write_text("".join(f"photos/{i:03d}.png\n" for i in range(40)))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    words = ["--labels", labels, "-o", out, "--device", "cpu", "--overwrite"]
    code, _, err = command(capsys, run.path, data, *words)
    assert code == 2
    assert said in " ".join(err.split())
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before
