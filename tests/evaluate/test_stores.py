"""What features and results are known again by, and the folder they lie in."""

import os
import shutil
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import wessl
from wessl.data.cache.build import build_cache
from wessl.data.sources.open import open_source
from wessl.encoder.conv import ConvNet
from wessl.evaluate.contestants import Contestant
from wessl.evaluate.features.trained_encoder import TrainedEncoder
from wessl.evaluate.protocol import Labelled
from wessl.evaluate.settings import Settings
from wessl.evaluate.settings_read import READ, settings_read
from wessl.evaluate.stores.computed_by import code_digest, computed_by
from wessl.evaluate.stores.features import FeatureStore, features_made_of
from wessl.evaluate.stores.results import ResultStore
from wessl.evaluate.suite import measure, on_features
from wessl.evaluate.task import Task

CPU = torch.device("cpu")


@pytest.fixture
def package(tmp_path):
    """A copy of this package's code."""
    home = Path(wessl.__file__).parent
    kept = shutil.ignore_patterns("__pycache__")
    return lambda name: shutil.copytree(home, tmp_path / name, ignore=kept)


@pytest.mark.parametrize(
    "file",
    [
        "evaluate/classifiers/knn.py",
        "encoder/kernels/norm.py",
        "data/decoding/decode.py",
        "run/encoders.py",
    ],
)
def test_any_changed_line_of_what_makes_numbers_is_other_code(package, file):
    changed = package("changed")
    assert (changed / file).exists()
    with (changed / file).open("a") as code:
        code.write("# one more\n")
    assert code_digest(changed) != code_digest(package("same"))


def test_the_same_code_elsewhere_is_the_same_and_what_makes_no_number_does_not_count(package):
    same = package("same")
    (same / "report" / "story.py").write_text("")
    (same / "evaluate" / "__pycache__").mkdir()
    (same / "evaluate" / "__pycache__" / "knn.pyc").write_bytes(b"1")
    assert code_digest(same) == code_digest()


def test_code_that_moves_to_another_file_is_other_code(package):
    moved = package("moved")
    (moved / "evaluate" / "classifiers" / "knn.py").rename(moved / "evaluate" / "nearest.py")
    assert code_digest(moved) != code_digest()


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    described = dict(encoder={"kind": "conv"}, image_size=8, resize=8, mean=[0.5], std=[0.25])
    return TrainedEncoder(ConvNet((8, 16), in_channels=1), described | dict(channels=1))


def test_the_number_of_one_gpu_model_does_not_answer_on_another(encoder, monkeypatch):
    def keys(*devices):
        places = [torch.device(device) for device in devices]
        of = Contestant("it", "run", encoder, FeatureStore(None), places[0], encoder, True, devices)
        made_of = features_made_of(encoder, "w", "p", "cls", "fp32", places)
        return str(made_of), str(of.sees("fp32"))

    models = ["H200", "H200", "L4"]
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: models[device.index])
    first, second = keys("cuda:0"), keys("cuda:1")
    assert first == second == keys("cuda:0", "cuda:1")
    for other in (keys("cuda:2"), keys("cpu"), keys("cuda:0", "cuda:2")):
        assert other[0] != first[0]
        assert other[1] != first[1]
    assert computed_by([CPU])["devices"] == ["cpu"]


@pytest.mark.parametrize("store", [FeatureStore, ResultStore])
def test_what_a_killed_writer_left_is_cleared_after_a_day(tmp_path, store):
    home = tmp_path / "features"
    home.mkdir()
    names = [".result-0a.safetensors.7.tmp", ".0b.safetensors.8.tmp", "0c.safetensors", ".mine"]
    for name in names:
        (home / name).write_bytes(b"half")
        os.utime(home / name, (time.time() - 90_000,) * 2)
    (home / ".0d.safetensors.9.tmp").write_bytes(b"another process writes this")
    store(tmp_path)
    left = sorted(file.name for file in home.iterdir())
    assert left == [".0d.safetensors.9.tmp", ".mine", "0c.safetensors"]


@pytest.fixture
def digits(tmp_path):
    return build_cache(open_source("builtin://digits/test"), None, tmp_path / "cache", workers=0)


def kept_after(folder, encoder, cache, reading="cls", precision="fp32"):
    """Features by the command of another day; the files that lie there then."""
    FeatureStore(folder).features(encoder, cache, reading, precision=precision)
    return {file.name for file in (folder / "features").iterdir()}


@pytest.mark.parametrize("change", ["torch", "code", "weights"])
def test_new_features_replace_those_that_nothing_can_read_any_more(
    encoder, digits, tmp_path, monkeypatch, change
):
    first = kept_after(tmp_path, encoder, digits)
    if change == "torch":
        monkeypatch.setattr(torch, "__version__", "99.0.0")
    elif change == "code":
        monkeypatch.setattr("wessl.evaluate.stores.computed_by.code_digest", lambda: "another")
    else:
        torch.nn.init.ones_(next(encoder.parameters()))
    second = kept_after(tmp_path, encoder, digits)
    assert len(second) == 1
    assert first.isdisjoint(second)


@pytest.mark.parametrize(
    "keeper",
    ["node", "student", "device", "earlier version", "result", "pictures", "reading", "precision"],
)
def test_features_that_somebody_may_still_read_stay(encoder, digits, tmp_path, monkeypatch, keeper):
    first = kept_after(tmp_path, encoder, digits)
    other = digits
    if keeper == "pictures":
        other = build_cache(open_source("builtin://digits/train"), None, tmp_path, workers=0)
    elif keeper == "student":
        encoder.description["network"] = "student"
        torch.nn.init.ones_(next(encoder.parameters()))
    elif keeper == "device":
        monkeypatch.setattr("wessl.evaluate.stores.computed_by.device_name", lambda device: "H200")
    elif keeper not in ("reading", "precision"):
        monkeypatch.setattr(torch, "__version__", "99.0.0")
    if keeper == "node":
        monkeypatch.setattr("platform.node", lambda: "another machine")
    elif keeper in ("earlier version", "result"):
        (file,) = (tmp_path / "features").iterdir()
        save_file({"features": torch.zeros(2)}, file, {"sha256": "0"})
        if keeper == "result":
            file.rename(file.with_name(f"result-{file.name}"))
            first = {f"result-{file.name}"}
    reading = "cls+mean" if keeper == "reading" else "cls"
    precision = "bf16" if keeper == "precision" else "fp32"
    second = kept_after(tmp_path, encoder, other, reading, precision)
    assert len(second) == 2
    assert first < second


def test_features_of_a_command_that_runs_at_the_same_time_stay(encoder, digits, tmp_path):
    slow = FeatureStore(tmp_path)  # its encoder is read by now
    old = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    torch.nn.init.ones_(next(encoder.parameters()))
    first = kept_after(tmp_path, encoder, digits)
    encoder.load_state_dict(old)
    slow.features(encoder, digits)
    assert first < {file.name for file in (tmp_path / "features").iterdir()}


def test_a_store_without_a_folder_is_opened_too(tmp_path):
    store = ResultStore(tmp_path / "nowhere")
    assert store.read({"k-NN": "0a"}) == {}
    assert not (tmp_path / "nowhere").exists()


class Watched(Settings):
    """Settings that tell which of them were read."""

    def __getattribute__(self, name):
        if name in Settings.__dataclass_fields__:
            object.__getattribute__(self, "__dict__").setdefault("seen", set()).add(name)
        return object.__getattribute__(self, name)


@pytest.mark.parametrize(
    ("protocol", "kind"),
    [
        ("k-NN", "k-NN"),
        ("linear", "linear"),
        ("linear-fast", "linear-fast"),
        ("2-shot", "few-shot"),
        ("5%", "few-shot"),
    ],
)
def test_the_table_names_all_settings_that_a_protocol_reads(encoder, tmp_path, protocol, kind):
    caches = [
        build_cache(open_source(f"builtin://digits/{side}"), None, tmp_path, workers=0)
        for side in ("train", "test")
    ]
    task = Task(*caches, *(cache.labels for cache in caches))
    of = Contestant("it", "run", encoder, FeatureStore(None), CPU, encoder, True)
    settings = Watched(draws=2, linear_epochs=1)
    list(measure(of, task, [protocol], settings, {}))
    assert vars(settings)["seen"] - {"precision"} == set(READ[kind])
    assert set(settings_read(protocol, Settings(), 10)) == set(READ[kind])


def test_lists_of_labelled_pictures_need_neither_draws_nor_a_seed():
    torch.manual_seed(0)
    x, y = torch.randn(60, 5), torch.arange(60) % 3
    train, test = ({"cls": Labelled(x[rows], y[rows])} for rows in (slice(0, 30), slice(30, 60)))
    draws = [torch.arange(6), torch.arange(6, 12)]
    one, two = (
        on_features("2-shot", train, test, settings, draws, CPU)
        for settings in (Settings(), Settings(draws=7, seed=5, linear_epochs=3, flip=False))
    )
    assert torch.equal(one.pop("predicted"), two.pop("predicted"))
    assert one == two
    assert not {"draws", "seed"} & set(READ["given lists"])


def test_a_protocol_that_the_table_lacks_has_all_settings():
    found = settings_read("something new", Settings(), 700)
    assert found.keys() | {"precision"} == Settings.__dataclass_fields__.keys()
    assert found["draws"] == 3
