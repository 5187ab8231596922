"""``wessl report`` from end to end: a trained run, its gallery, its page."""

import subprocess
import sys

import pytest

import wessl
from wessl.data.cache.build import build_cache
from wessl.data.sources.open import open_source
from wessl.evaluate.gallery import gallery
from wessl.verbs.report import report


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    home = tmp_path_factory.mktemp("runs")
    cache = home / "cache"
    trained = wessl.pretrain(
        "builtin://digits/train", home / "digits", "dino-star-ent", quiet=True, epochs=1,
        device="cpu", log_every=5, cache=str(cache), workers=0,
    )  # fmt: skip
    pictures = build_cache(open_source("builtin://digits/train"), 8, cache, workers=0)
    trained.save_result("gallery", gallery(wessl.load(trained.path), pictures))
    return trained


def test_a_trained_run_gets_its_page(run):
    path = wessl.report(run.path)
    text = path.read_text()
    assert path == run.path / "report.html"
    assert "1,297 grey pictures" in text
    assert "k-NN accuracy of 259 pictures is " in text  # of a fifth of them
    assert text.count('class="chart"') == 7  # six of the training, one of the heads
    assert text.count('class="query"') == 12
    assert len(text) < 3_000_000
    assert "The start warned: 1,297 pictures in batches of 64 for 1 epoch make 20 steps" in text
    assert [p.name for p in run.path.iterdir() if p.name.startswith(".report")] == []


def test_the_same_run_gives_the_same_page(run, tmp_path):
    pages = [report(run.path, tmp_path / f"{i}.html").read_bytes() for i in range(2)]
    assert pages[0] == pages[1]


def test_the_command_writes_where_it_is_told(run, tmp_path):
    out = tmp_path / "new folder" / "page.html"
    done = subprocess.run(
        [sys.executable, "-m", "wessl", "report", str(run.path), "-o", str(out)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == f"report: {out}\n"
    assert out.read_text().startswith("<!doctype html>")


def test_several_runs_are_compared_in_the_folder_that_holds_them(run, tmp_path):
    places = [tmp_path / "runs" / name for name in ("a", "b")]
    for place in places:
        wessl.Run.create(place, run.read_config())
    assert report([*places, places[0]]) == tmp_path.resolve() / "runs" / "report.html"
    assert "2 runs compared" in (tmp_path / "runs" / "report.html").read_text()


def test_mistakes_are_named(run, tmp_path):
    with pytest.raises(wessl.UserError, match="is no run folder; train one first"):
        report(tmp_path)
    with pytest.raises(wessl.UserError, match="is a folder; name the page"):
        report(run.path, tmp_path)
    with pytest.raises(wessl.UserError, match="no run to report on"):
        report([])
    (tmp_path / "file").touch()
    with pytest.raises(wessl.UserError, match=r"-o .*page\.html: cannot be written"):
        report(run.path, tmp_path / "file" / "page.html")


def test_a_page_that_cannot_be_written_leaves_the_old_one(run, tmp_path, monkeypatch):
    page = report(run.path, tmp_path / "page.html")
    before = page.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(wessl.UserError, match="No space left"):
        report(run.path, page)
    assert page.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]
