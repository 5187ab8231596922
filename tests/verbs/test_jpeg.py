"""``wessl pretrain --jpeg gpu`` where it cannot be had, and where it would change a run."""

import json
import os

import pytest
import torch
from small_runs import QUICK

import wessl
from wessl.errors import UserError

DIGITS = "builtin://digits/test"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WESSL_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("decode", ["auto", "once", "stream"])
def test_without_a_gpu_it_is_refused_before_anything_is_decoded_or_written(tmp_path, decode):
    why = "cpu is no GPU" if torch.cuda.is_available() else "no GPU was found; leave --jpeg out"
    with pytest.raises(UserError, match=f"--jpeg gpu: {why}"):
        wessl.pretrain(DIGITS, tmp_path / "run", **QUICK, jpeg="gpu", decode=decode)
    assert not os.listdir(tmp_path)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a machine that can decode does")
def test_a_finished_run_needs_no_gpu_to_say_that_it_is(tmp_path, capsys):
    run = wessl.pretrain(DIGITS, tmp_path / "run", **QUICK)
    header = json.loads((run.path / "config.json").read_text())
    header["options"]["jpeg"], header["data"]["digest"] = "gpu", None  # as a GPU would have made it
    (run.path / "config.json").write_text(json.dumps(header))
    (run.path / "report.html").unlink()
    kept = [
        run.path / "encoder.safetensors",
        run.path / "metrics.jsonl",
        *run.checkpoints.iterdir(),
    ]
    before = [path.stat().st_mtime_ns for path in kept]
    steps = max(row["step"] for row in run.read_metrics())
    asked = QUICK | dict(jpeg="gpu", quiet=False)
    wessl.pretrain(DIGITS, run.path, **asked)
    assert f"{run.path} is finished: step {steps} of {steps}" in capsys.readouterr().err
    assert [path.stat().st_mtime_ns for path in kept] == before
    assert (run.path / "report.html").exists()
    with pytest.raises(UserError, match="begun on 500 pictures"):
        wessl.pretrain("builtin://digits/train", run.path, **asked)
    (run.path / "encoder.safetensors").unlink()
    with pytest.raises(UserError, match="--jpeg gpu: no GPU was found"):
        wessl.pretrain(DIGITS, run.path, **asked)


def test_a_run_goes_on_with_the_pixels_it_was_begun_with(tmp_path):
    run = wessl.pretrain(DIGITS, tmp_path / "run", **QUICK)
    assert run.read_config()["options"]["jpeg"] == "cpu"
    refused = r"begun with --jpeg cpu, .*; give --jpeg cpu, or choose a new --out"
    with pytest.raises(UserError, match=refused):
        wessl.pretrain(DIGITS, tmp_path / "run", **QUICK, jpeg="gpu")
    header = json.loads((run.path / "config.json").read_text())
    del header["options"]["jpeg"]  # as a version wrote it that did not know of it
    (run.path / "config.json").write_text(json.dumps(header))
    wessl.pretrain(DIGITS, tmp_path / "run", **QUICK)
    header["options"]["jpeg"] = "gpu"
    (run.path / "config.json").write_text(json.dumps(header))
    with pytest.raises(UserError, match="begun with --jpeg gpu"):
        wessl.pretrain(DIGITS, tmp_path / "run", **QUICK)
