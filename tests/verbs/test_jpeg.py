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
