"""A command given again: from the record only where nothing that makes a result has changed."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from sklearn.datasets import load_digits

import wessl
from wessl.cli import main
from wessl.errors import UserError
from wessl.evaluate.stores.results import ResultStore

SMALL = {"heads.count": 2, "codes": 16, "hidden_dim": 32, "quiet": True}
QUICK = dict(device="cpu", draws=3)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder, data = tmp_path_factory.mktemp("trained"), "builtin://digits/test"
    return wessl.pretrain(data, folder / "run", "dino-star-ent", device="cpu", epochs=1, **SMALL)


@pytest.fixture
def run(trained, tmp_path):
    return wessl.Run(shutil.copytree(trained.path, tmp_path / "run"))


@pytest.fixture
def sides(tmp_path):
    """8 training and 6 test pictures of each of five digits, in class folders."""
    data = load_digits()
    for name, part in (("train", slice(0, 8)), ("test", slice(8, 14))):
        for digit in range(5):
            home = tmp_path / "data" / name / f"d{digit}"
            home.mkdir(parents=True)
            for i, image in enumerate(data.images[data.target == digit][part]):
                Image.fromarray((image * 255 / 16).astype(np.uint8)).save(
                    home / f"d{digit}_{i}.png"
                )
    return tmp_path / "data" / "train", tmp_path / "data" / "test"


def command(capsys, *words):
    with pytest.raises(SystemExit) as left:
        main(["evaluate", *map(str, words)])
    return left.value.code, *capsys.readouterr()


def days(found):
    """When each result was measured, by encoder and protocol."""
    return {
        (row["name"], name): result["measured"]
        for row in found["rows"]
        for name, result in row["results"].items()
    }


def mark(run, day="2020-02-02"):
    """Makes everything kept in a run older, so that it is known again."""
    for path in (run.path / "features").glob("result-*.safetensors"):
        key = path.stem.removeprefix("result-")
        (result,) = ResultStore(run.path).read({"it": key}).values()
        ResultStore(run.path).write(key, result | dict(measured=f"{day}T00:00:00+00:00"))


def without(found, *names):
    return {key: value for key, value in found.items() if key not in names}


def test_the_same_command_gives_the_same_record_and_says_from_when_it_is(run, sides, capsys):
    words = [run.path, "--train", sides[0], "--test", sides[1], "--draws", 3, "--device", "cpu"]
    code, first, said = command(capsys, *words)
    assert code == 0
    assert "--again" not in said
    (path,) = run.results.glob("evaluation-*.json")
    record = json.loads(path.read_text())
    mark(run)
    code, second, said = command(capsys, *words)
    assert (code, second) == (0, first)
    assert "15 results are from 2020-02-02; --again measures them anew" in said
    again = json.loads(path.read_text())
    for row in again["rows"]:
        for result in row["results"].values():
            assert result.pop("measured").startswith("2020-02-02")
    for row in record["rows"]:
        for result in row["results"].values():
            del result["measured"]
    assert again == record


def test_only_what_is_missing_is_measured(run, sides):
    wessl.evaluate(run, *sides, ["k-NN", "2-shot"], **QUICK)
    mark(run)
    found = wessl.evaluate(run, *sides, ["1-shot", "k-NN", "2-shot"], **QUICK)
    assert found["columns"] == ["1-shot", "k-NN", "2-shot"]
    old = {name for name, day in days(found).items() if day.startswith("2020")}
    assert old == {(row["name"], p) for row in found["rows"] for p in ("k-NN", "2-shot")}
    assert set(found["differences"][0]["results"]) == {"1-shot", "k-NN", "2-shot"}
    fresh = wessl.evaluate(run, *sides, ["1-shot", "k-NN", "2-shot"], again=True, **QUICK)
    assert not any(day.startswith("2020") for day in days(fresh).values())
    for one, other in zip(found["rows"], fresh["rows"], strict=True):
        for name, result in one["results"].items():
            apart = without(result, "measured"), without(other["results"][name], "measured")
            assert apart[0] == apart[1]
    assert found["per_class"] == fresh["per_class"]
    assert found["differences"] == fresh["differences"]
    kept = wessl.evaluate(run, *sides, ["k-NN"], **QUICK)
    assert days(kept)["run", "k-NN"] == days(fresh)["run", "k-NN"]  # the newer stays


def old_results(run, sides, **changed):
    options = QUICK | dict(protocols=["k-NN", "2-shot"]) | changed
    found = days(wessl.evaluate(run, *sides, **options))
    return {name for name, day in found.items() if day.startswith("2020")}


@pytest.mark.parametrize(
    "changed",
    [dict(seed=1), dict(select="test")],
)
def test_another_setting_is_never_answered_from_the_record(run, sides, changed):
    wessl.evaluate(run, *sides, ["k-NN", "2-shot"], **QUICK)
    mark(run)
    assert not old_results(run, sides, **changed)
    assert len(old_results(run, sides)) == 6


ALL = ["k-NN", "2-shot", "linear-fast", "linear"]


@pytest.mark.parametrize(
    ("changed", "fitted"),
    [
        (dict(draws=4), {"2-shot"}),
        (dict(strength="sum", features="raw"), {"2-shot"}),
        (dict(use_strength=0.3), {"2-shot"}),
        (dict(linear_epochs=3), {"linear", "linear-fast"}),
        (dict(flip=False), {"linear"}),
        (dict(precision="fp32"), set()),  # what a CPU has anyway
        (dict(precision="bf16"), set(ALL)),
    ],
)
def test_only_protocols_that_read_a_setting_are_fitted_again_with_another(
    run, sides, changed, fitted
):
    options = dict(protocols=ALL, linear_epochs=2, baselines=False)
    old_results(run, sides, **options)
    mark(run)
    old = old_results(run, sides, **options | changed)
    assert old == {("run", name) for name in set(ALL) - fitted}


def test_raw_pixels_have_no_precision(run, sides):
    old_results(run, sides)
    mark(run)
    assert {name for name, _ in old_results(run, sides, precision="bf16")} == {"raw pixels"}


def test_the_usual_number_of_draws_may_be_spelt_out(run, sides):
    options = dict(protocols=["2-shot"], baselines=False)
    old_results(run, sides, **options, draws=None)
    mark(run)
    assert old_results(run, sides, **options, draws=30) == {("run", "2-shot")}


def spoil_features(run):
    """Others in place of those kept, which nothing but computing them can tell."""
    for path in (run.path / "features").glob("[0-9a-f]*.safetensors"):
        wrong = torch.randn_like(load_file(path)["features"])
        checksum = hashlib.sha256(wrong.numpy().tobytes()).hexdigest()
        save_file({"features": wrong}, path, {"about": json.dumps({"sha256": checksum})})


def test_again_computes_features_too(run, sides):
    options = QUICK | dict(protocols=["k-NN", "linear"], linear_epochs=2, baselines=False)

    def numbers(**changed):
        (row,) = wessl.evaluate(run, *sides, **options | changed)["rows"]
        return {name: without(result, "measured") for name, result in row["results"].items()}

    right = numbers()
    spoil_features(run)
    assert numbers(seed=1)["k-NN"]["accuracy"] < right["k-NN"]["accuracy"]  # they were read
    assert numbers(again=True) == right
    assert numbers() == right


def test_again_decodes_what_changed_and_its_help_says_so(run, sides, capsys):
    def accuracy(**changed):
        options = QUICK | dict(protocols=["k-NN"], baselines=False) | changed
        return wessl.evaluate(run, *sides, **options)["rows"][0]["results"]["k-NN"]["accuracy"]

    for path in sides[1].rglob("*.png"):  # without compression, so that any pixels take one size
        Image.open(path).save(path, compress_level=0)
    right = accuracy()
    test = sorted(sides[1].rglob("*.png"))
    before = {path: (path.read_bytes(), path.stat()) for path in test}
    for path, other in zip(test, reversed(test), strict=True):
        path.write_bytes(before[other][0])
        assert path.stat().st_size == before[path][1].st_size
    changed = accuracy()
    assert changed < right
    for path in test:
        path.write_bytes(before[path][0])
        then = before[path][1]
        os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert accuracy() == right
    for path, other in zip(test, reversed(test), strict=True):
        path.write_bytes(before[other][0])
        then = before[path][1]
        os.utime(path, ns=(then.st_atime_ns, then.st_mtime_ns))
    assert accuracy(again=True) == right  # of the pictures as they were decoded
    said = " ".join(command(capsys, "--help")[1].replace("│", " ").split())
    assert "decoded pictures are reused, unless a file's name, size or time changed" in said


def test_again_computes_the_features_of_other_datasets_too(run, sides):
    def accuracy(**changed):
        options = dict(transfer=sides[0].parent, device="cpu", baselines=False) | changed
        return wessl.evaluate(run, **options)["transfer"]["run"]["data"]["accuracy"]

    right = accuracy()
    spoil_features(run)
    assert accuracy(strength="sum") < right
    assert accuracy(again=True) == right


def test_equal_numbers_measured_again_keep_their_gains_on_other_runs(run, sides, tmp_path):
    other = wessl.Run(shutil.copytree(run.path, tmp_path / "other"))
    options = QUICK | dict(protocols=["k-NN", "2-shot", "linear-fast"], linear_epochs=2)
    wessl.evaluate([run, other], *sides, **options)
    (path,) = run.results.glob("evaluation-*.json")
    before = json.loads(path.read_text())
    assert "other" in {gain["name"] for gain in before["differences"]}
    mark(run)
    wessl.evaluate(run, *sides, **options)  # with marked days, from the record
    wessl.evaluate(run, *sides, **options, again=True)
    after = json.loads(path.read_text())
    assert days(after)["run", "k-NN"] > "2020-03"
    gains = [
        sorted(record["differences"], key=lambda one: one["name"]) for record in (before, after)
    ]
    assert gains[0] == gains[1]
    wessl.evaluate(run, *sides, **options | dict(seed=3))
    later = {one["name"]: one["results"] for one in json.loads(path.read_text())["differences"]}
    assert "other" not in later  # other numbers


def test_changed_code_is_never_answered_from_the_record(run, sides, tmp_path):
    words = ["--train", sides[0], "--test", sides[1], "--protocols", "k-NN", "--device", "cpu"]
    wessl.evaluate(run, *sides, ["k-NN"], baselines=False, device="cpu")
    mark(run)
    features = len(list((run.path / "features").glob("[0-9a-f]*")))
    copied = tmp_path / "elsewhere" / "wessl"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(wessl.__file__).parent, copied, ignore=ignored)

    def said_there():
        done = subprocess.run(
            [sys.executable, "-m", "wessl", "evaluate", run.path, *words, "--no-baselines"],
            env=os.environ | dict(PYTHONPATH=str(copied.parent)),
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
        )
        return done.stderr

    assert "1 result is from 2020-02-02" in said_there()  # the same code in another place
    with (copied / "evaluate" / "classifiers" / "knn.py").open("a") as code:
        code.write("# another line\n")
    assert "--again" not in said_there()
    assert len(list((run.path / "features").glob("[0-9a-f]*"))) == 2 * features


def test_another_torch_is_never_answered_from_the_record(run, sides, monkeypatch):
    old_results(run, sides)
    mark(run)
    assert len(old_results(run, sides)) == 6
    monkeypatch.setattr(torch, "__version__", "99.0.0")
    assert not old_results(run, sides)


def test_another_encoder_picture_or_label_is_never_answered_from_the_record(run, sides):
    wessl.evaluate(run, *sides, ["k-NN", "2-shot"], **QUICK)
    mark(run)
    train, test = sides
    assert not old_results(run, sides, network="student") & {("run (student)", "k-NN")}
    file = run.path / "encoder.safetensors"
    weights = load_file(file)
    save_file({name: 1.5 * tensor for name, tensor in weights.items()}, file)
    assert {name for name, _ in old_results(run, sides)} == {"raw pixels", "random encoder"}
    save_file(weights, file)
    assert len(old_results(run, sides)) == 6
    for home in (train, test):
        picture = home / "d0" / "d0_0.png"
        before = picture.read_bytes()
        Image.fromarray(np.array(Image.open(picture)) // 2).save(picture)
        assert not old_results(run, sides)
        picture.write_bytes(before)
        assert len(old_results(run, sides)) == 6
        picture.rename(home / "d1" / "moved.png")
        assert not old_results(run, sides)
        (home / "d1" / "moved.png").rename(home / "d0" / "d0_0.png")
    assert len(old_results(run, sides)) == 6


def test_other_lists_of_labelled_pictures_are_other_draws(run, sides, tmp_path):
    names = [f"d{digit}_0.png" for digit in range(5)]
    lists = tmp_path / "1shot1.txt"

    def measured():
        found = wessl.evaluate(run, *sides, ["1-shot"], splits=lists, baselines=False, **QUICK)
        return days(found)["run", "1-shot"]

    lists.write_text("\n".join(names))
    measured()
    mark(run)
    assert measured().startswith("2020")
    lists.write_text("\n".join(names).replace("d3_0", "d3_1"))
    assert not measured().startswith("2020")


def test_a_damaged_or_missing_file_is_measured_again(run, sides):
    options = QUICK | dict(protocols=["k-NN", "2-shot"], baselines=False)
    wessl.evaluate(run, *sides, **options)
    mark(run)
    first, second = sorted((run.path / "features").glob("result-*.safetensors"))
    raw = bytearray(first.read_bytes())
    raw[-1] ^= 1
    first.write_bytes(raw)
    assert len(old_results(run, sides, baselines=False)) == 1
    second.unlink()
    assert not old_results(run, sides, baselines=False)


def test_runs_measured_apart_are_compared_from_the_record(run, sides, tmp_path):
    other = wessl.Run(shutil.copytree(run.path, tmp_path / "other"))
    weights = load_file(other.path / "encoder.safetensors")
    save_file({k: -v for k, v in weights.items()}, other.path / "encoder.safetensors")
    fresh = wessl.evaluate([run, other], *sides, ["2-shot"], again=True, **QUICK)
    for one in (run, other):
        shutil.rmtree(one.path / "features")
        wessl.evaluate(one, *sides, ["2-shot"], **QUICK)
        mark(one)
    found = wessl.evaluate([run, other], *sides, ["2-shot"], **QUICK)
    assert all(day.startswith("2020") for day in days(found).values())
    assert found["differences"] == fresh["differences"]


def test_other_datasets_are_not_measured_twice_either(run, sides):
    def measured(**changed):
        found = wessl.evaluate(run, transfer=sides[0].parent, device="cpu", **changed)
        return {name: one["data"]["measured"][:4] for name, one in found["transfer"].items()}

    measured()
    mark(run)
    assert set(measured().values()) == {"2020"}
    for changed in (dict(seed=1), dict(select="test"), dict(again=True)):
        assert "2020" not in measured(**changed).values()
    mark(run)
    unread = dict(draws=7, linear_epochs=3, flip=False, use_strength=0.5, precision="fp32")
    assert set(measured(**unread).values()) == {"2020"}
    (sides[1] / "d0" / "d0_0.png").unlink()
    assert "2020" not in measured().values()


@pytest.mark.parametrize(
    ("inside", "flag", "said"),
    [
        (
            "test",
            "--test",
            r"holds test/, a part of a data set and not a class; give --test .*/test$",
        ),
        ("val", "--test", r"holds val/, a part of a data set .* give --test .*/val$"),
        ("train", "--train", r"holds train/, a part of a data set .* give --train .*/train$"),
        ("val", "--train", r"holds val/, .* give --train a folder with the class folders"),
    ],
)
def test_a_folder_that_holds_a_part_of_a_data_set_names_that_part(
    run, sides, tmp_path, inside, flag, said
):
    train, test = sides
    shutil.copytree(test, tmp_path / "outer" / inside)
    given = (tmp_path / "outer", test) if flag == "--train" else (train, tmp_path / "outer")
    with pytest.raises(UserError, match=f"^{flag} .*outer {said}"):
        wessl.evaluate(run, *given, ["k-NN"], **QUICK)


def test_the_part_that_the_flag_means_is_named_where_there_are_both(run, sides):
    train, test = sides
    with pytest.raises(
        UserError, match=r"holds test/ and train/, parts .* give --test .*data/test$"
    ):
        wessl.evaluate(run, train, train.parent, ["k-NN"], **QUICK)
    with pytest.raises(UserError, match=r"parts of a data set; give --train .*data/train$"):
        wessl.evaluate(run, train.parent, test, ["k-NN"], **QUICK)


def test_pictures_in_test_without_class_folders_are_said_to_need_them(run, sides, tmp_path):
    train, test = sides
    (tmp_path / "outer" / "test").mkdir(parents=True)
    shutil.copy(test / "d0" / "d0_0.png", tmp_path / "outer" / "test")
    with pytest.raises(UserError, match=r"lacks: test; a folder for each class is needed in it"):
        wessl.evaluate(run, train, tmp_path / "outer", ["k-NN"], **QUICK)
