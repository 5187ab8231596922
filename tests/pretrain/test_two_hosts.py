"""Two hosts, made of two network namespaces, train together while the wire between them is cut."""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import wessl
from wessl.run import Run

DATA = "builtin://digits/test"
SETTINGS = {"heads.count": 2, "epochs": 6, "precision": "fp32"}
NET = "10.213.77"
DOWN = 8.0
"""Seconds without a wire: longer than ``--timeout``, which is what makes a process give up."""


def ip(*words: object) -> None:
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True)


def namespaces_work() -> bool:
    name = f"wessl-try-{os.getpid()}"
    try:
        ip("netns", "add", name)
        ip("netns", "delete", name)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


needs_hosts = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None or not namespaces_work(),
    reason="two hosts need root and `ip netns`",
)


@pytest.fixture
def hosts():
    """Two namespaces joined by a pair of virtual cards, and nothing else."""
    names = [f"wessl-{side}-{os.getpid()}" for side in "ab"]
    with contextlib.ExitStack() as undo:
        for name in names:
            ip("netns", "add", name)
            undo.callback(ip, "netns", "delete", name)
        ip("-n", names[0], "link", "add", "wire", "type", "veth", "peer", "wire", "netns", names[1])
        for number, name in enumerate(names, 1):
            ip("-n", name, "address", "add", f"{NET}.{number}/24", "dev", "wire")
            ip("-n", name, "link", "set", "wire", "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield names


def start(host: str, number: int, out: Path, cache: Path) -> "subprocess.Popen[str]":
    """``torchrun`` as on a cluster: the same words on each host."""
    launcher = ["-m", "torch.distributed.run", "--nnodes=2", "--nproc-per-node=1"]
    launcher += ["--rdzv-backend=c10d", f"--rdzv-endpoint={NET}.1:29871", "--rdzv-id=two-hosts"]
    launcher += [f"--local-addr={NET}.{number}", f"--rdzv-conf=is_host={int(number == 1)}"]
    launcher += ["--max-restarts=5", "--monitor-interval=0.2"]
    words = ["-m", "wessl", "pretrain", DATA, "--out", str(out), "--device", "cpu"]
    words += ["--heads.count", "2", "--epochs", "6", "--precision", "fp32", "--timeout", "4"]
    words += ["--log-every", "1", "--save-every", "0"]
    return subprocess.Popen(
        ["ip", "netns", "exec", host, sys.executable, *launcher, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ
        | dict(GLOO_SOCKET_IFNAME="wire", OMP_NUM_THREADS="1", WESSL_CACHE=str(cache)),
    )


def wait_for(run: Run, rows: int) -> None:
    deadline = time.monotonic() + 120
    while len(run.read_metrics()) < rows:
        assert time.monotonic() < deadline
        time.sleep(0.02)


@needs_hosts
def test_a_host_that_is_cut_off_comes_back_and_nothing_is_lost(hosts, tmp_path):
    cache = tmp_path / "cache"
    settings = dict(device="cpu", cache=str(cache), quiet=True, **SETTINGS)
    alone = wessl.pretrain(DATA, tmp_path / "alone", log_every=1, **settings)
    run = Run(tmp_path / "run")
    processes = [start(host, n, run.path, cache) for n, host in enumerate(hosts, 1)]
    try:
        wait_for(run, 8)
        ip("-n", hosts[1], "link", "set", "wire", "down")
        cut_at = run.read_metrics()[-1]["step"]
        time.sleep(DOWN)
        assert run.read_metrics()[-1]["step"] <= cut_at + 1  # nobody went on alone
        assert not (run.path / "encoder.safetensors").exists()
        ip("-n", hosts[1], "link", "set", "wire", "up")
        said = [process.communicate(timeout=180)[0] for process in processes]
    finally:
        for process in processes:
            process.terminate()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(said)
    assert any("lost the others" in words for words in said)
    assert any(f"resuming {run.path} at step" in words for words in said)
    steps = [row["step"] for row in run.read_metrics() if "loss" in row]
    assert steps == [row["step"] for row in alone.read_metrics() if "loss" in row]
    expected = load_file(alone.path / "encoder.safetensors")
    found = load_file(run.path / "encoder.safetensors")
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-3, atol=5e-4, msg=name)
