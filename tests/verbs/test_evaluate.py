"""Evaluation as a user asks for it: run folders, class folders, lists, flags and mistakes."""

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits

import wessl
from wessl.cli import main
from wessl.errors import Failure, UserError
from wessl.verbs.evaluating.verdict import verdict

TRAIN, TEST = "builtin://digits/train", "builtin://digits/test"
SMALL = {"heads.count": 2, "codes": 16, "hidden_dim": 32, "quiet": True}
NAMES = [f"d{digit}" for digit in range(10)]
QUICK = dict(device="cpu", draws=3, baselines=False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    return wessl.pretrain(TEST, folder / "run", "dino-star-ent", device="cpu", epochs=1, **SMALL)


@pytest.fixture
def run(trained, tmp_path):
    """The trained run, free to be written to."""
    return wessl.Run(shutil.copytree(trained.path, tmp_path / "run"))


@pytest.fixture
def folders(tmp_path):
    """Class folders: 6 training and 4 test pictures of each digit, named as ImageNet's are."""
    data = load_digits()
    for name, part in (("train", slice(0, 6)), ("test", slice(6, 10))):
        for digit in range(10):
            home = tmp_path / "data" / name / NAMES[digit]
            home.mkdir(parents=True)
            for i, image in enumerate(data.images[data.target == digit][part]):
                pixels = (image * 255 / 16).astype(np.uint8)
                Image.fromarray(pixels).save(home / f"{NAMES[digit]}_{i}.png")
    return tmp_path / "data"


def command(capsys, *words):
    """Exit code and what was printed, out and err."""
    with pytest.raises(SystemExit) as left:
        main(["evaluate", *map(str, words)])
    return left.value.code, *capsys.readouterr()


def results_of(run):
    (path,) = run.results.glob("evaluation-*.json")
    return json.loads(path.read_text(), parse_constant=lambda name: pytest.fail(name))


def test_the_command_prints_one_table_and_keeps_every_number_with_its_protocol(run, capsys):
    words = ["--train", TRAIN, "--test", TEST, "--draws", 3, "--device", "cpu"]
    code, printed, said = command(capsys, run.path, *words)
    assert code == 0
    for text in (
        "1-shot",
        "linear-fast",
        "raw pixels",
        "random encoder",
        "Hardest classes for run",
    ):
        assert text in printed
    record = results_of(run)
    assert [row["role"] for row in record["rows"]] == ["run", "pixels", "random"]
    assert record["columns"] == ["1-shot", "2-shot", "5-shot", "k-NN", "linear-fast"]
    own = record["rows"][0]
    for row in record["rows"][:-1]:  # said at once, for those who wait for the last
        accuracy = row["results"]["1-shot"]["accuracy"]
        assert f"{row['name']}: 1-shot {100 * accuracy:.1f} %, 2-shot " in said
    assert (
        len(own["weights"]) == len(record["train"]["digest"]) == len(record["test"]["digest"]) == 64
    )
    for name, result in own["results"].items():
        low, high = result["interval"]
        assert low <= result["accuracy"] <= high
        assert result["protocol"]["name"] == name
        assert result["versions"]["torch"] == torch.__version__
        assert result["command"] == record["command"]
    five = own["results"]["5-shot"]
    assert five["draws"] == len(five["per_draw"]) == len(five["strength"]) == 3
    assert five["sd"] == pytest.approx(np.std(five["per_draw"], ddof=1))
    assert own["results"]["linear-fast"]["draws"] == 1
    assert record["per_class"]["protocol"] == "5-shot"
    assert np.shape(record["per_class"]["confusion"]) == (10, 10)
    gain = record["differences"][0]
    assert (gain["name"], gain["base"]) == ("raw pixels", "run")
    assert set(gain["results"]) == set(record["columns"])


def test_other_protocols_are_added_and_other_weights_replace_all(run):
    wessl.evaluate(run, TRAIN, TEST, ["1-shot"], device="cpu", draws=3)
    wessl.evaluate(run, TRAIN, TEST, ["k-NN"], **QUICK)
    record = results_of(run)
    assert record["columns"] == ["1-shot", "k-NN"]
    assert [set(row["results"]) for row in record["rows"]] == [
        {"1-shot", "k-NN"},
        {"1-shot"},
        {"1-shot"},
    ]
    assert set(record["differences"][0]["results"]) == {"1-shot"}
    assert record["per_class"]["protocol"] == "1-shot"  # of few labels, rather than of all
    wessl.evaluate(run, TRAIN, TEST, ["1-shot"], select="test", **QUICK)
    record = results_of(run)  # what was measured by another protocol may not stand beside it
    assert "optimistic" in record["rows"][0]["results"]["1-shot"]["protocol"]["strength_chosen"]
    assert len(record["rows"]) == 1
    assert record["differences"] == []
    weights = load_file(run.path / "encoder.safetensors")
    save_file(
        {name: 1.5 * tensor for name, tensor in weights.items()}, run.path / "encoder.safetensors"
    )
    wessl.evaluate(run, TRAIN, TEST, ["2-shot"], **QUICK)
    assert results_of(run)["columns"] == ["2-shot"]


def test_class_by_class_stays_of_the_few_shot_protocol_with_the_most_labels(run):
    def of(*protocols):
        wessl.evaluate(run, TRAIN, TEST, protocols, **QUICK)
        return results_of(run)["per_class"]

    five = of("5-shot")
    assert five["protocol"] == "5-shot"
    assert of("1-shot") == of("1%") == of("k-NN") == five
    assert of("10-shot")["protocol"] == "10-shot"
    assert of("2-shot", "5-shot")["protocol"] == "10-shot"
    weights = load_file(run.path / "encoder.safetensors")
    save_file({k: 1.5 * v for k, v in weights.items()}, run.path / "encoder.safetensors")
    assert of("1-shot")["protocol"] == "1-shot"


def test_a_damaged_result_is_written_anew(run):
    wessl.evaluate(run, TRAIN, TEST, ["k-NN"], **QUICK)
    (path,) = run.results.glob("evaluation-*.json")
    path.write_text("{")
    wessl.evaluate(run, TRAIN, TEST, ["k-NN"], **QUICK)
    assert results_of(run)["columns"] == ["k-NN"]


def test_several_runs_and_other_weights_stand_in_one_table_and_each_run_keeps_its_own(
    run, tmp_path, capsys
):
    other = wessl.Run(shutil.copytree(run.path, tmp_path / "elsewhere" / "run"))
    weights = tmp_path / "weights"
    weights.mkdir()
    for name in ("encoder.safetensors", "encoder.json"):
        shutil.copy(run.path / name, weights)
    also = weights / "encoder.safetensors"
    words = ["--train", TRAIN, "--test", TEST, "--protocols", "1-shot", "--draws", "3"]
    code, printed, _ = command(
        capsys, run.path, other.path, "--also", also, *words, "--device", "cpu"
    )
    assert code == 0
    flat = " ".join(printed.split())
    assert "elsewhere/run" in flat
    assert "+0.0 ±" in flat
    for one in (run, other):
        record = results_of(one)
        assert [row["role"] for row in record["rows"]] == ["run", "also", "pixels", "random"]
        assert record["rows"][0]["name"] == "run"
        assert {gain["base"] for gain in record["differences"]} == {"run"}
        roles = [gain["role"] for gain in record["differences"]]
        assert roles == ["run", "also", "pixels", "random"]
        assert record["differences"][0]["results"]["1-shot"]["difference"] == 0
    wessl.evaluate(run, TRAIN, TEST, ["k-NN"], **QUICK)  # alone its name was shorter
    record = results_of(run)
    assert record["columns"] == ["1-shot", "k-NN"]
    assert record["differences"][0]["role"] == "run"  # measured earlier, and still true
    wessl.evaluate(run, TRAIN, TEST, ["1-shot"], select="test", **QUICK)
    assert "run" not in [gain["role"] for gain in results_of(run)["differences"]]


def test_what_one_run_gains_on_another_is_kept_by_both_with_the_sign_turned(trained, tmp_path):
    ours, theirs = (shutil.copytree(trained.path, tmp_path / name) for name in ("a", "b"))
    file = theirs / "encoder.safetensors"
    torch.manual_seed(0)  # some other noise has equal numbers
    noisy = {k: v + 0.3 * torch.randn_like(v) for k, v in load_file(file).items()}
    save_file(noisy, file)
    found = wessl.evaluate([ours, theirs], TRAIN, TEST, ["1-shot", "k-NN"], **QUICK)
    kept = [results_of(wessl.Run(path))["differences"] for path in (ours, theirs)]
    assert [(one["name"], one["weights"]) for (one,) in kept] == [
        (row["name"], row["weights"]) for row in found["rows"][::-1]
    ]
    for column in ("1-shot", "k-NN"):
        gain, loss = (one["results"][column] for (one,) in kept)
        assert gain["difference"] == -loss["difference"] != 0
        a, b = (row["results"][column]["accuracy"] for row in found["rows"])
        assert loss["difference"] == a - b
        low, high = loss["interval"]
        assert low <= a - b <= high


def test_a_weights_file_alone_is_measured_like_its_run(run, tmp_path):
    found = wessl.evaluate(run, TRAIN, TEST, ["k-NN", "2-shot"], **QUICK)
    for name in ("encoder.safetensors", "encoder.json"):
        shutil.copy(run.path / name, tmp_path)
    alone = wessl.evaluate(
        tmp_path / "encoder.safetensors", TRAIN, TEST, ["k-NN", "2-shot"], **QUICK
    )
    assert not (tmp_path / "results").exists()
    rows = [one["rows"][0] for one in (found, alone)]
    assert rows[0]["weights"] == rows[1]["weights"]
    for name in ("k-NN", "2-shot"):
        assert rows[0]["results"][name]["accuracy"] == rows[1]["results"][name]["accuracy"]


def test_python_returns_plain_values(run):
    found = wessl.evaluate(str(run.path), TRAIN, TEST, ["knn", "1-shot"], **QUICK)
    again = json.loads(json.dumps(found, allow_nan=False))
    assert again == found
    assert found["columns"] == ["k-NN", "1-shot"]


def test_the_student_is_another_row_in_another_file(run):
    wessl.evaluate(run, TRAIN, TEST, ["k-NN"], **QUICK)
    found = wessl.evaluate(run, TRAIN, TEST, ["k-NN"], network="student", **QUICK)
    assert found["rows"][0]["name"] == "run (student)"
    kept = [json.loads(p.read_text())["rows"][0] for p in run.results.glob("evaluation-*.json")]
    assert {row["network"] for row in kept} == {"teacher", "student"}
    assert len({row["weights"] for row in kept}) == 2


def test_another_size_of_pictures_is_another_table_in_another_file(run, capsys):
    usual = wessl.evaluate(run, TRAIN, TEST, ["k-NN"], **QUICK)
    code, printed, said = command(
        capsys, run.path, "--train", TRAIN, "--test", TEST, "--protocols", "k-NN", "--device",
        "cpu", "--no-baselines", "--image-size", 24,
    )  # fmt: skip
    assert code == 0
    assert "Accuracy in %, seen at 24 pixels" in " ".join(printed.split())
    assert "are from" not in said  # another number than the one that is kept
    kept = {}
    for path in run.results.glob("evaluation-*.json"):
        record = json.loads(path.read_text())
        kept[record["test"].get("seen_at")] = record["rows"][0]["results"]["k-NN"]["accuracy"]
    assert kept.keys() == {None, 24}
    assert kept[None] == usual["rows"][0]["results"]["k-NN"]["accuracy"] != kept[24]
    page = (run.path / "report.html").read_text()
    first, second = (page.index(f"tested on <code>{TEST}</code> (500 pictures, 10 classes){end}")
                     for end in (".", "; encoders were shown 24 pixels."))  # fmt: skip
    assert first < second
    assert f"accuracy on the test pictures of {TEST} is" in page
    gallery = json.loads((run.results / "gallery.json").read_text())
    again = wessl.evaluate(run, TRAIN, TEST, ["k-NN"], image_size=24, **QUICK)
    assert json.loads((run.results / "gallery.json").read_text()) == gallery
    assert again["rows"][0]["results"]["k-NN"]["accuracy"] == kept[24]


def test_the_encoders_own_size_is_no_other_one(run):
    for size in (None, wessl.load(run.path).description["image_size"]):
        found = wessl.evaluate(run, TRAIN, TEST, ["k-NN"], image_size=size, **QUICK)
        assert "seen_at" not in found["test"]
    assert len(list(run.results.glob("evaluation-*.json"))) == 1


def test_runs_of_two_sizes_are_compared_at_one(run, tmp_path):
    settings = {"epochs": 0.1, "device": "cpu", "quiet": True, "encoder.image_size": 24}
    larger = wessl.pretrain(TEST, tmp_path / "larger", recipe="dino-star", **settings)
    found = wessl.evaluate(
        [run.path, larger.path],
        TRAIN,
        TEST,
        ["k-NN"],
        image_size=24,
        **QUICK | dict(baselines=True),
    )
    assert found["test"]["seen_at"] == 24
    assert [row["name"] for row in found["rows"][:2]] == ["run", "larger"]
    (small,) = (json.loads(p.read_text()) for p in run.results.glob("evaluation-*.json"))
    assert small["test"]["seen_at"] == small["train"]["seen_at"] == 24
    assert small["differences"][0]["name"] == "larger"
    # Whose own size it is keeps what it has without the flag, and nothing of the other's size.
    (own,) = (json.loads(p.read_text()) for p in larger.results.glob("evaluation-*.json"))
    assert "seen_at" not in own["test"] | own["train"]
    assert [row["name"] for row in own["rows"]] == ["larger"]
    assert own["differences"] == []
    alone = wessl.evaluate(larger, TRAIN, TEST, ["k-NN"], **QUICK)
    assert alone["rows"][0]["results"] == own["rows"][0]["results"]
    assert len(list(larger.results.glob("evaluation-*.json"))) == 1
    page = wessl.report([run.path, larger.path], out=tmp_path / "both.html").read_text()
    accuracy = [row["results"]["k-NN"]["accuracy"] for row in found["rows"][:2]]
    table = page[page.index("encoders were shown 24 pixels") :]
    assert all(f"{100 * value:.1f}" in table for value in accuracy)
    assert f"accuracy on the test pictures of {TEST} (seen at 24 pixels) is" in page


TRANSFORMER = {"kind": "vit", "dim": 24, "depth": 4, "heads": 2, "patch_size": 8}


@pytest.mark.parametrize("encoder", [{}, TRANSFORMER], ids=["conv", "vit"])
def test_a_comparison_leaves_another_runs_baselines_alone(run, tmp_path, encoder):
    settings = {"epochs": 0.1, "device": "cpu", "quiet": True, "encoder.image_size": 24}
    settings |= {f"encoder.{name}": value for name, value in encoder.items()}
    larger = wessl.pretrain(TEST, tmp_path / "larger", recipe="dino-star", **settings)
    both = dict(QUICK, baselines=True)

    def kept():
        (path,) = larger.results.glob("evaluation-*.json")
        record = json.loads(path.read_text())
        return {row["name"]: row["results"] for row in record["rows"]}, record["differences"]

    # A transformer's linear classifiers may read four blocks, those of the run beside it one.
    wessl.evaluate(larger, TRAIN, TEST, ["k-NN", "1-shot", "linear-fast"], **both)
    before = kept()
    assert before[0].keys() == {"larger", "raw pixels", "random encoder"}
    wessl.evaluate([run.path, larger.path], TRAIN, TEST, ["k-NN", "linear-fast"], **both)
    rows, gains = kept()
    assert rows == before[0]
    assert [one for one in gains if one["name"] != "run"] == before[1]
    assert any(one["name"] == "run" for one in gains)


def test_a_size_that_cannot_be_is_refused(run, tmp_path):
    for size in (0, -8, 5000):
        with pytest.raises(
            UserError,
            match=f"/run: --image-size must be a whole number from 1 to 4,096, not {size}",
        ):
            wessl.evaluate(run, TRAIN, TEST, image_size=size, **QUICK)
    with pytest.raises(UserError, match="--image-size is for --train and --test"):
        wessl.evaluate(run, TRAIN, TEST, transfer=tmp_path, image_size=24, **QUICK)


def test_the_linear_protocols_run_with_and_without_test_pictures(run, folders):
    for test in (folders / "test", None):
        found = wessl.evaluate(
            run, folders / "train", test, ["linear", "linear-fast"], linear_epochs=2, device="cpu"
        )
        rows = {row["role"]: row["results"] for row in found["rows"]}
        assert set(rows["run"]) == {"linear", "linear-fast"}
        assert set(rows["pixels"]) == {"linear-fast"}  # raw pixels have no crops to encode
        protocol = rows["run"]["linear"]["protocol"]
        assert protocol["test_pictures"] == (40 if test else 10)


def test_without_test_pictures_a_stratified_fifth_is_held_out(run, folders):
    found = wessl.evaluate(run, folders / "train", protocols=["k-NN", "1-shot"], **QUICK)
    assert (found["train"]["pictures"], found["test"]["pictures"]) == (50, 10)
    assert found["test"]["classes"] == 10
    assert found["train"]["digest"] != found["test"]["digest"]
    assert any("held out" in note for note in found["notes"])
    other = wessl.evaluate(run, folders / "train", protocols=["k-NN"], seed=1, **QUICK)
    assert other["test"]["digest"] != found["test"]["digest"]  # other pictures, another file
    assert len(list(run.results.glob("evaluation-*.json"))) == 2


def test_classes_are_matched_by_name_when_test_has_fewer(run, folders):
    whole = wessl.evaluate(run, folders / "train", folders / "test", ["5-shot"], **QUICK)
    for name in ("d0", "d4"):
        shutil.rmtree(folders / "test" / name)
    part = wessl.evaluate(run, folders / "train", folders / "test", ["5-shot"], **QUICK)
    assert (part["train"]["classes"], part["test"]["classes"]) == (10, 8)
    before, after = (
        {one["name"]: one["accuracy"] for one in found["per_class"]["classes"]}
        for found in (whole, part)
    )
    assert after["d0"] is after["d4"] is None
    assert all(after[name] == before[name] for name in NAMES if name not in ("d0", "d4"))


def test_unknown_classes_in_test_are_named(run, folders):
    (folders / "test" / "d3").rename(folders / "test" / "aardvark")
    with pytest.raises(
        UserError, match=r"has 1 class that --train .* lacks: aardvark; --train has d0, d1"
    ):
        wessl.evaluate(run, folders / "train", folders / "test", **QUICK)


def test_one_test_picture_of_one_class_is_enough(run, folders):
    for path in sorted((folders / "test").rglob("*.png"))[1:]:
        path.unlink()
    found = wessl.evaluate(run, folders / "train", folders / "test", **QUICK)
    assert found["test"] | dict(digest="") == found["test"] | dict(pictures=1, classes=1, digest="")
    for result in found["rows"][0]["results"].values():
        low, high = result["interval"]
        assert high - low > 0.5


def test_two_classes_are_enough(run, folders):
    for side in ("train", "test"):
        for name in NAMES[2:]:
            shutil.rmtree(folders / side / name)
    found = wessl.evaluate(run, folders / "train", folders / "test", **QUICK)
    assert found["columns"] == ["1-shot", "2-shot", "5-shot", "k-NN", "linear-fast"]


def test_too_few_labels_are_refused_by_the_class_name(run, folders):
    for path in sorted((folders / "train" / "d7").iterdir())[2:]:
        path.unlink()
    with pytest.raises(UserError, match="class 'd7' of --train has 2 labelled pictures"):
        wessl.evaluate(run, folders / "train", folders / "test", ["1-shot", "5-shot"], **QUICK)
    found = wessl.evaluate(run, folders / "train", folders / "test", **QUICK)
    assert found["columns"] == ["1-shot", "2-shot", "k-NN", "linear-fast"]


def test_pictures_in_both_sets_are_warned_of(run, folders, capsys):
    shutil.copy(folders / "train/d2/d2_1.png", folders / "test/d2/copy.png")
    words = ["--train", folders / "train", "--test", folders / "test", "--protocols", "k-NN"]
    code, printed, said = command(capsys, run.path, *words, "--device", "cpu")
    assert code == 0
    assert "Accuracy in %, too good: 1 of 41 test pictures" in " ".join(printed.split())
    assert "1 of 41 test pictures is also among the training pictures" in said
    assert "d2/copy.png is d2/d2_1.png" in said
    record = results_of(run)
    assert any("too good" in note for note in record["notes"])
    assert record["test"]["in_train"] == 1


def test_a_later_test_on_training_pictures_does_not_take_the_first_place_of_the_page(run, folders):
    """Nor does an earlier one come before the honest one."""
    honest, same = (folders / "train", folders / "test"), (folders / "train", folders / "train")
    for sides in (honest, same, honest):
        wessl.evaluate(run, *sides, ["1-shot"], **QUICK)
    text = (run.path / "report.html").read_text()
    finding = text[text.index('class="finding"') :]
    finding = finding[: finding.index("</p>")]
    assert f"on the test pictures of {folders / 'test'} is" in finding
    assert "too good" not in finding
    assert "too good: all test pictures are among the labelled ones" in text


def test_a_run_behind_a_baseline_everywhere_is_told_so_and_not_that_it_is_unsure():
    def row(name, role, *accuracies):
        results = {
            column: dict(accuracy=a, interval=[a - 0.1, a + 0.1])
            for column, a in zip(("1-shot", "k-NN"), accuracies, strict=True)
        }
        return dict(name=name, role=role, results=results)

    rows = [row("run", "run", 0.4, 0.5), row("raw pixels", "pixels", 0.45, 0.5)]
    gain = {column: dict(interval=[-0.1, 0.2]) for column in ("1-shot", "k-NN")}
    gains = [[dict(name="raw pixels", results=gain)]]
    said = list(verdict(rows, gains, ["1-shot", "k-NN"], classes=10))
    assert said[0] == "run is behind raw pixels or level with it by every protocol."
    assert said[1].startswith("Nothing here shows")


def test_results_are_kept_whoever_stops_reading_them(run):
    line = f"{sys.executable} -m wessl evaluate {run.path} --train {TRAIN} --test {TEST}"
    options = "--protocols k-NN --no-baselines --device cpu 2>/dev/null | true"
    subprocess.run(f"{line} {options}", shell=True, check=True)
    assert results_of(run)["columns"] == ["k-NN"]


def test_guessing_is_called_guessing_even_if_some_number_is_higher_by_chance(run, tmp_path, capsys):
    noise = np.random.default_rng(0).integers(0, 256, (240, 8, 8), np.uint8)
    for side, part in (("train", slice(0, 80)), ("test", slice(80, 240))):
        labels = np.arange(len(noise[part])) % 4
        np.savez(tmp_path / f"{side}.npz", images=noise[part], labels=labels)
    words = ["--train", tmp_path / "train.npz", "--test", tmp_path / "test.npz", "--draws", 3]
    code, printed, _ = command(capsys, run.path, *words, "--device", "cpu")
    assert code == 0
    said = " ".join(printed.split())
    assert "run is not surely better than guessing, 25.0 % with 4 classes, by any" in said
    for name in ("raw pixels", "random encoder"):
        assert f"run does not surely beat {name} by any protocol." in said
    assert "Nothing here shows that run has learnt much: train longer" in said
    accuracies = [
        [one["accuracy"] for one in row["results"].values()] for row in results_of(run)["rows"]
    ]
    assert any(a > b for a, b in zip(*accuracies[:2], strict=True))  # by chance


def test_test_pictures_that_the_run_learnt_from_are_told_of(folders, tmp_path, monkeypatch):
    monkeypatch.chdir(folders)
    train, test = folders / "train", folders / "test"
    run = wessl.pretrain(
        "../data", tmp_path / "run", "dino-star-ent", device="cpu", epochs=1, **SMALL
    )

    def notes(*sides):
        return " ".join(wessl.evaluate(run, *sides, protocols=["k-NN"], **QUICK)["notes"])

    assert "note: the test pictures are among those that run learnt from" in notes(train, "test")
    assert any("learnt from" in note for note in results_of(run)["notes"])
    header = json.loads((run.path / "config.json").read_text())

    def learnt_from(place):
        header["data"]["location"] = str(place)
        (run.path / "config.json").write_text(json.dumps(header))

    learnt_from(train)
    assert "learnt from" not in notes(train, test)
    assert "note: the test pictures are among" in notes(train)  # a fifth, held out of them
    learnt_from(test / "d3")
    assert "note: some of the test pictures are among" in notes(train, test)


def test_copies_within_one_folder_are_warned_of_too(run, folders):
    for digit in NAMES:
        for i in range(6):
            shutil.copy(
                folders / f"train/{digit}/{digit}_{i}.png", folders / f"train/{digit}/copy{i}.png"
            )
    found = wessl.evaluate(run, folders / "train", protocols=["k-NN"], **QUICK)
    assert any("also among the training pictures" in note for note in found["notes"])


def test_unreadable_pictures_are_left_out_and_named(run, folders):
    (folders / "train/d1/d1_3.png").write_bytes(b"no picture")
    found = wessl.evaluate(run, folders / "train", folders / "test", ["5-shot", "k-NN"], **QUICK)
    assert found["train"]["pictures"] == 59
    assert found["train"]["unreadable"] == ["d1/d1_3.png"]
    assert any("1 unreadable" in note and "d1/d1_3.png" in note for note in found["notes"])


def test_test_pictures_may_have_other_sizes_and_colours(run, folders):
    for path in (folders / "test").rglob("*.png"):
        picture = Image.open(path).convert("RGB").resize((30, 40), Image.Resampling.BICUBIC)
        picture.save(path)
    found = wessl.evaluate(run, folders / "train", folders / "test", device="cpu", draws=3)
    assert [row["role"] for row in found["rows"]] == ["run", "pixels", "random"]
    assert found["rows"][1]["results"]["k-NN"]["accuracy"] > 0.5


def test_changed_labels_of_a_list_count_though_its_pictures_did_not_change(run, folders, tmp_path):
    def write(labels):
        lines = [
            f"{path}\t{labels[path.parent.name]}"
            for path in sorted((folders / "train").rglob("*.png"))
        ]
        (tmp_path / "train.txt").write_text("\n".join(lines))

    own = {name: name for name in NAMES}
    write(own)
    first = wessl.evaluate(run, tmp_path / "train.txt", folders / "test", ["k-NN"], **QUICK)
    write(own | dict(d1="d8", d8="d1"))
    second = wessl.evaluate(run, tmp_path / "train.txt", folders / "test", ["k-NN"], **QUICK)
    assert first["train"]["digest"] != second["train"]["digest"]
    before, after = (found["rows"][0]["results"]["k-NN"]["accuracy"] for found in (first, second))
    assert after < before


def test_published_lists_take_the_place_of_draws(run, folders):
    lists = folders / "lists"
    lists.mkdir()
    for draw in (1, 2, 3):
        for shots in (1, 2):
            names = [f"{n}_{i}.JPEG" for n in NAMES for i in range(draw - 1, draw - 1 + shots)]
            name = "3imgs_class.txt" if (draw, shots) == (3, 2) else f"{shots}shot{draw}.txt"
            (lists / name).write_text("\n".join(names))
    found = wessl.evaluate(run, folders / "train", folders / "test", splits=lists, **QUICK)
    assert found["columns"] == ["1-shot", "2-shot", "k-NN", "linear-fast"]
    for shots in (1, 2):
        result = found["rows"][0]["results"][f"{shots}-shot"]
        assert result["draws"] == 3
        assert result["protocol"]["drawn"] == "given lists"
        assert result["protocol"]["labelled_pictures"] == [10 * shots]
    with pytest.raises(UserError, match="--splits needs --test"):
        wessl.evaluate(run, folders / "train", splits=lists, **QUICK)
    (lists / "1shot1.txt").write_text("d1_77.JPEG\n")
    with pytest.raises(UserError, match="d1_77"):
        wessl.evaluate(
            run, folders / "train", folders / "test", splits=[lists / "1shot1.txt"], **QUICK
        )


def test_settings_reach_the_protocols(run, folders):
    sides = folders / "train", folders / "test"
    options = dict(strength="sum", features="raw", use_strength=0.3, seed=5)
    found = wessl.evaluate(run, *sides, ["2-shot", "50%"], **options, **QUICK)
    for name in ("2-shot", "50%"):
        result = found["rows"][0]["results"][name]
        said = result["protocol"]
        assert (said["strength_on"], said["features"]) == ("sum loss", "as they are")
        assert said["drawn"] == "stratified, nested, seed 5"
        assert result["strength"] == [0.3] * 3
        assert said["strength_chosen"] == "given beforehand"
    assert found["settings"]["use_strength"] == 0.3


def test_transfer_datasets_have_a_table_and_a_file_of_their_own(run, folders, capsys):
    code, printed, _ = command(capsys, run.path, "--transfer", folders, "--device", "cpu")
    assert code == 0
    assert "Transfer: accuracy in %" in printed
    assert "random encoder" in printed
    kept = json.loads((run.results / "transfer.json").read_text())
    assert kept["kind"] == "transfer"
    assert len(kept["weights"]) == 64
    (result,) = kept["results"].values()
    low, high = result["interval"]
    assert 0 <= low <= result["accuracy"] <= high <= 1
    assert result["versions"]
    assert [one["name"] for one in kept["others"]] == ["raw pixels", "random encoder"]
    for one in kept["others"]:
        (other,) = one["results"].values()
        assert other["protocol"] == result["protocol"]
        assert other["interval"][0] <= other["accuracy"] <= other["interval"][1]
    assert not list(run.results.glob("evaluation-*.json"))
    assert "random encoder" in (run.path / "report.html").read_text()
    second = shutil.copytree(folders, folders.with_name("second"))
    wessl.evaluate(run, transfer=second, baselines=False, device="cpu")
    kept = json.loads((run.results / "transfer.json").read_text())
    assert set(kept["results"]) == {"data", "second"}  # what was measured before stays
    assert [set(one["results"]) for one in kept["others"]] == [{"data"}, {"data"}]


def test_runs_on_other_datasets_are_compared_picture_by_picture(run, folders, tmp_path, capsys):
    second = wessl.pretrain(
        TEST, tmp_path / "other", "dino-star-unif", device="cpu", epochs=1, seed=5, **SMALL
    )
    words = [run.path, second.path, "--transfer", folders, "--device", "cpu"]
    code, printed, _ = command(capsys, *words)
    assert code == 0
    assert "other - run" in printed
    assert "differences are paired" in printed
    kept = [json.loads((one.results / "transfer.json").read_text()) for one in (run, second)]
    (gain,) = (one for one in kept[0]["differences"] if one["name"] == "other")
    (back,) = (one for one in kept[1]["differences"] if one["name"] == "run")
    assert (gain["base"], back["base"]) == ("run", "other")
    own, other = (record["results"]["data"]["accuracy"] for record in kept)
    found = gain["results"]["data"]
    assert found["difference"] == pytest.approx(other - own)
    assert found["interval"][0] <= found["difference"] <= found["interval"][1]
    assert back["results"]["data"]["difference"] == pytest.approx(own - other)
    again = shutil.copytree(folders, folders.with_name("second"))
    wessl.evaluate([run, second], transfer=again, baselines=False, device="cpu")
    kept = json.loads((run.results / "transfer.json").read_text())
    sets = {one["name"]: set(one["results"]) for one in kept["differences"]}
    assert sets["other"] == {"data", "second"}
    assert sets["raw pixels"] == {"data"}
    wessl.evaluate(run, transfer=folders, baselines=False, device="cpu", again=True)
    alone = json.loads((run.results / "transfer.json").read_text())
    assert alone["differences"] == kept["differences"]  # measured alone, at the same numbers


def test_teacher_and_student_on_other_datasets_stand_beside_each_other(run, folders, capsys):
    words = dict(baselines=False, device="cpu")
    kept = run.results / "transfer.json", run.results / "transfer-student.json"
    wessl.evaluate(run, transfer=folders, **words)
    old = json.loads(kept[0].read_text())
    assert old.pop("network") == "teacher"
    kept[0].write_text(json.dumps(old))  # as a version wrote it that did not tell them apart
    wessl.evaluate(run, transfer=folders, network="student", **words)
    assert json.loads(kept[0].read_text()) == old
    student = json.loads(kept[1].read_text())
    assert (student["kind"], student["network"]) == ("transfer", "student")
    assert student["weights"] != old["weights"]
    page = (run.path / "report.html").read_text()
    named = re.findall(r"<th scope=.row.>(run[^<]*)<", page[page.index("On other datasets") :])
    assert named[:2] == ["run", "run (student)"]
    again = shutil.copytree(folders, folders.with_name("second"))
    for network in ("teacher", "student"):
        asked = ["--network", network, "--no-baselines", "--device", "cpu"]
        code, _, said = command(capsys, run.path, "--transfer", folders, again, *asked)
        assert code == 0
        assert "1 result is from" in said  # and the other is of pictures not seen before
    for path, before in zip(kept, (old, student), strict=True):
        results = json.loads(path.read_text())["results"]
        assert set(results) == {"data", "second"}
        assert results["data"] == before["results"]["data"]


def test_class_folders_alone_are_measured_on_a_fifth_of_them(run, folders):
    found = wessl.evaluate(run, transfer=folders / "train", baselines=False, device="cpu")
    said = found["transfer"]["run"]["train"]["protocol"]
    assert (said["train_pictures"], said["test_pictures"]) == (50, 10)
    assert said["split"].startswith("20% of each class tested on")


def test_a_wrong_transfer_path_is_told_before_anything_is_measured(run, folders):
    words = dict(train=TRAIN, test=TEST, protocols=["1-shot"], **QUICK)
    with pytest.raises(UserError, match=r"nowhere is no folder"):
        wessl.evaluate(run, transfer=[folders, "nowhere"], **words)
    assert not list(run.results.glob("evaluation-*.json"))
    double = shutil.copytree(folders, folders.parent / "copy" / "data")
    with pytest.raises(UserError, match="have one name, 'data'"):
        wessl.evaluate(run, transfer=[folders, double], **words)
    found = wessl.evaluate(run, transfer=folders, **words)
    assert found["rows"]
    assert "rows" not in json.loads((run.results / "transfer.json").read_text())


def test_what_is_said_of_the_training_pictures_is_not_said_of_other_datasets(run, folders):
    words = dict(train=TEST, protocols=["1-shot"], **QUICK)
    found = wessl.evaluate(run, transfer=folders, **words)
    assert any("held out and tested on" in note for note in found["notes"])
    assert json.loads((run.results / "transfer.json").read_text())["notes"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give --train"),
        (["--test", TEST], "give --train"),
        (["--train", "nowhere"], "nowhere does not exist"),
        (["--train", TRAIN, "--protocols", "3-shoots"], "--protocols '3-shoots' is unknown"),
        (["--train", TRAIN, "--draws", "0"], "--draws must be 1 or more"),
        (["--train", TRAIN, "--use-strength", "-1"], "--use-strength must be a number above 0"),
        (["--train", TRAIN, "--also", "gone.pth"], "gone.pth does not exist"),
        (["--train", TRAIN, "--device", "tpu"], "--device 'tpu' is not a device"),
        (["--train", TRAIN, "--protocols", "500-shot"], "fewer than 500"),
    ],
)
def test_mistakes_are_told_in_words_before_any_work(run, capsys, words, said):
    code, _, errors = command(capsys, run.path, *words)
    assert code == 2
    assert said in errors
    assert "Traceback" not in errors
    assert not list(run.results.glob("evaluation-*.json"))


def test_no_run_an_unfinished_one_or_one_given_twice_is_refused(run, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    for paths, said in (
        ([], "give a RUN"),
        ([tmp_path / "empty"], "is no run folder"),
        ([run.path, f"{run.path}/../run"], "are the same"),
    ):
        code, _, errors = command(capsys, *paths, "--train", TRAIN, "--device", "cpu")
        assert code == 2
        assert said in errors


def test_pictures_without_labels_are_refused_by_their_flag(run, folders):
    flat = folders / "flat"
    flat.mkdir()
    for i, path in enumerate(sorted((folders / "test").rglob("*.png"))):
        shutil.copy(path, flat / f"{i}.png")
    for sides, flag in (((flat, None), "--train"), ((folders / "train", flat), "--test")):
        with pytest.raises(UserError, match=f"{flag} .*flat has no labels; give folders named"):
            wessl.evaluate(run, *sides, **QUICK)


def test_misspelt_settings_in_python_are_refused(run):
    with pytest.raises(UserError, match="unknown setting 'selct'; known are draws"):
        wessl.evaluate(run, TRAIN, TEST, selct="test")
    with pytest.raises(UserError, match="select must be val or test"):
        wessl.evaluate(run, TRAIN, TEST, select="tset")
    with pytest.raises(UserError, match="--network must be teacher or student"):
        wessl.evaluate(run, TRAIN, TEST, network="both")


def test_the_table_is_printed_even_where_results_cannot_be_written(run, capsys):
    shutil.rmtree(run.results, ignore_errors=True)
    run.results.write_text("a file where the folder should be")
    words = ["--train", TRAIN, "--test", TEST, "--protocols", "k-NN", "--device", "cpu"]
    code, printed, errors = command(capsys, run.path, *words)
    assert code == Failure.exit_code
    assert "k-NN" in printed
    assert "the results above are not kept" in errors
