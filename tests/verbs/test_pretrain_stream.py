"""Training on pictures that are decoded each time: as with a cache, without its disk."""

import re
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from small_runs import photographs, tiny

import wessl
from wessl.errors import UserError

TRACE = ("loss", "teacher_entropy", "codes_used", "rank")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WESSL_CACHE", str(tmp_path / "cache"))


def grey(folder, n=24):
    """Grey pictures of different sizes with labels: normalisation is estimated from them."""
    rng = np.random.default_rng(1)
    for i in range(n):
        place = folder / f"class{i % 3}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 255, (40 + i % 5, 50 - i % 7), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{i:02d}.png")
    return folder


def traces(run):
    rows = run.read_metrics()
    learnt = [{key: row[key] for key in TRACE} for row in rows if "loss" in row]
    return learnt, [row["probe"] for row in rows if "probe" in row]


def encoder(run):
    return (run.path / "encoder.safetensors").read_bytes()


@pytest.mark.parametrize("make", [photographs, grey])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_streamed_run_is_the_cached_run_bit_for_bit(tmp_path, make, workers):
    folder = make(tmp_path / "photos")
    (folder / next(p.name for p in folder.iterdir()) / "zz.png").write_bytes(b"broken")
    settings = tiny(epochs=2, log_every=1, max_bad=0.1, workers=workers)
    once = wessl.pretrain(folder, tmp_path / "once", **settings, decode="once")
    shutil.rmtree(tmp_path / "cache")
    stream = wessl.pretrain(folder, tmp_path / "stream", **settings, decode="stream")
    assert not (tmp_path / "cache").exists()
    assert encoder(once) == encoder(stream)
    assert traces(once) == traces(stream)
    assert traces(once)[1]  # k-NN was there to be compared
    a, b = (run.read_config() for run in (once, stream))
    assert a["normalisation"] == b["normalisation"]
    assert a["data"]["sample"] == b["data"]["sample"]
    assert (a["data"]["skipped"], b["data"]["skipped"]) == (1, None)
    for run in (once, stream):
        assert "zz.png" in (run.path / "train.log").read_text()


def keep_only(run, step):
    """As if the run had been killed after that step."""
    for path in run.checkpoints.iterdir():
        if f"{step:09d}" not in path.name:
            path.unlink()
    (run.path / "encoder.safetensors").unlink()


@pytest.mark.parametrize("ways", [("stream", "stream"), ("stream", "once"), ("once", "stream")])
def test_a_run_goes_on_either_way_bit_for_bit(tmp_path, ways):
    folder = grey(tmp_path / "photos")
    settings = tiny(epochs=2, log_every=1, save_every=0.0, keep=9)
    whole = wessl.pretrain(folder, tmp_path / "whole", **settings, decode="once")
    run = wessl.pretrain(folder, tmp_path / "run", **settings, decode=ways[0])
    keep_only(run, 3)
    wessl.pretrain(folder, tmp_path / "run", **settings, decode=ways[1])
    assert encoder(run) == encoder(whole)
    states = [r.load_checkpoint() for r in (run, whole)]
    for name, tensor in states[0]["student"].items():
        assert torch.equal(tensor, states[1]["student"][name])


def test_a_streamed_run_knows_its_pictures_again(tmp_path):
    folder = grey(tmp_path / "photos")
    settings = tiny(decode="stream")
    wessl.pretrain(folder, tmp_path / "run", **settings)
    wessl.pretrain(shutil.copytree(folder, tmp_path / "copy"), tmp_path / "run", **settings)
    Image.new("L", (45, 40)).save(folder / "class0" / "00.png")
    with pytest.raises(UserError, match="are not the same"):
        wessl.pretrain(folder, tmp_path / "run", **settings)


def test_where_the_disk_has_no_room_for_a_cache_pictures_are_streamed(
    tmp_path, monkeypatch, capsys
):
    folder = grey(tmp_path / "photos")
    usage = shutil.disk_usage(tmp_path)._replace(free=20_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    run = wessl.pretrain(folder, tmp_path / "run", **tiny(quiet=False))
    header = run.read_config()
    assert header["data"]["decode"] == "stream"
    (choice,) = [c for c in header["choices"] if c["setting"] == "decode"]
    assert (choice["value"], choice["warning"]) == ("stream", True)
    said = capsys.readouterr().err
    assert re.search(r"a cache would take about 4\d\.\d kB of the 20\.0 kB free", said)
    assert "decoded again for every batch" in said
