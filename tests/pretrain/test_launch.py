"""``--devices``: processes that are lost, stopped or mistaken, through the command line itself."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import wessl
from wessl.run import Run

WORDS = ("pretrain", "builtin://digits/test", "--device", "cpu", "--heads.count", "2")
SETTINGS = {"heads.count": 2, "epochs": 3, "log_every": 1}
QUICK = ("--optim.epochs", "3", "--log-every", "1", "--save-every", "0", "--timeout", "60")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, cache):
    """The encoder of the same run, made by one process."""
    out = tmp_path_factory.mktemp("alone") / "run"
    wessl.pretrain(WORDS[1], out, device="cpu", cache=str(cache), quiet=True, **SETTINGS)
    return load_file(out / "encoder.safetensors")


def start(cache, *words, **environment) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "wessl", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"WESSL_CACHE": str(cache)} | environment,
    )


def children(process) -> list[int]:
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(pid) for pid in path.read_text().split()]


def wait_for(run: Run, rows: int, process) -> None:
    deadline = time.monotonic() + 120
    while len(run.read_metrics()) < rows:
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)


def same_encoder(run: Run, expected) -> None:
    weights = load_file(run.path / "encoder.safetensors")
    assert weights.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(weights[name], tensor, rtol=1e-3, atol=2e-4, msg=name)


def test_a_killed_process_is_replaced_and_nothing_is_lost(tmp_path, cache, undisturbed):
    run = Run(tmp_path / "run")
    process = start(cache, *WORDS, "--out", run.path, "--devices", 2, *QUICK)
    wait_for(run, 6, process)
    os.kill(children(process)[1], signal.SIGKILL)
    printed, said = process.communicate(timeout=200)
    assert process.returncode == 0, said
    assert "process 1 of 2 was killed by SIGKILL; all start again from the last check" in said
    assert f"resuming {run.path} at step" in said
    assert printed.count("encoder: ") == 1
    assert "Traceback" not in said
    same_encoder(run, undisturbed)


def test_a_signal_saves_and_stops_all_and_a_loss_without_restarts_leaves_it_whole(
    tmp_path, cache, undisturbed
):
    run = Run(tmp_path / "run")
    words = (*WORDS, "--out", run.path, *QUICK, "--devices", 2, "--restarts", 0)
    process = start(cache, *words)
    wait_for(run, 3, process)
    pids = children(process)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=200)
    assert process.returncode == 128 + signal.SIGTERM
    saved = run.load_checkpoint()["step"]
    last = f"wessl: stopped by SIGTERM, saved at step {saved}; the same command goes on"
    assert said.splitlines()[-1] == last
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]

    process = start(cache, *words)
    wait_for(run, saved + 3, process)
    os.kill(children(process)[0], signal.SIGKILL)
    _, said = process.communicate(timeout=200)
    assert process.returncode == 1
    assert f"resuming {run.path} at step {saved} of" in said
    saved = run.load_checkpoint()["step"]
    assert said.splitlines()[-1] == (
        "wessl: process 0 of 2 was killed by SIGKILL, and no restart is left (--restarts 0). "
        f"The run is saved at step {saved}; the same command goes on"
    )
    wessl.pretrain(WORDS[1], run.path, device="cpu", cache=str(cache), quiet=True, **SETTINGS)
    same_encoder(run, undisturbed)


def test_mistakes_are_told_once_and_not_tried_again(tmp_path, cache):
    words = (*WORDS, "--out", tmp_path / "run", "--devices", 2)
    process = start(cache, *words, "--optim.batch-size", 63)
    _, said = process.communicate(timeout=100)
    assert process.returncode == 2
    assert said.splitlines()[-1].startswith("wessl: a batch of 63 cannot be split evenly over 2")
    assert said.count("cannot be split") == 1
    assert not (tmp_path / "run").exists()
