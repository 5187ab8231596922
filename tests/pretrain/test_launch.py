"""``--devices``: processes that are lost, stopped or mistaken, through the command line itself."""

import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import wessl
from wessl.data.sources.open import open_source
from wessl.errors import UserError
from wessl.run import Run

# In full precision, in which a team and one process agree closely.
SETTINGS = {"heads.count": 2, "epochs": 3, "log_every": 1, "precision": "fp32"}
WORDS = ("--device", "cpu", "--heads.count", "2", "--optim.epochs", "3", "--log-every", "1")
QUICK = (*WORDS, "--precision", "fp32", "--save-every", "0", "--timeout", "60", "--devices", "2")
HANDLED = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Digits as files, which other processes decode."""
    folder = tmp_path_factory.mktemp("digits")
    digits = open_source("builtin://digits/test")
    for number in range(len(digits)):
        Image.fromarray(digits.read(number)[:, :, 0]).save(folder / f"{number:03d}.png")
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, cache, data):
    """The encoder of the same run, made by one process."""
    return finish(data, tmp_path_factory.mktemp("alone") / "run", cache)


def finish(data, out, cache, devices=1):
    settings = SETTINGS | dict(device="cpu", devices=devices, cache=str(cache), quiet=True)
    wessl.pretrain(data, out, **settings)
    return load_file(out / "encoder.safetensors")


@pytest.fixture
def start(cache):
    """Starts the command; what a failed test leaves behind is ended."""
    started = []

    def begin(*words) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "wessl", "pretrain", *map(str, words)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"WESSL_CACHE": str(cache)},
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.terminate()
        process.communicate()


def children(pid: int) -> list[int]:
    """Of all its threads."""
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return sorted(int(child) for path in found for child in path.read_text().split())


def wait_for(condition, process=None) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        assert process is None or process.poll() is None, process.communicate()[1]
        time.sleep(0.1)


def wait_for_rows(run: Run, rows: int, process) -> None:
    wait_for(lambda: len(run.read_metrics()) >= rows, process)


def same_encoder(weights, expected) -> None:
    assert weights.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(weights[name], tensor, rtol=1e-3, atol=2e-4, msg=name)


def test_a_team_in_half_precision_has_the_losses_of_one_process_to_rounding(tmp_path, cache, data):
    losses = []
    for devices in (1, 2):
        out = tmp_path / f"of-{devices}"
        settings = SETTINGS | dict(precision="bf16", device="cpu", devices=devices)
        run = wessl.pretrain(data, out, cache=str(cache), quiet=True, **settings)
        losses.append([row["loss"] for row in run.read_metrics() if "loss" in row])
    assert len(losses[0]) > 3
    assert losses[1] == pytest.approx(losses[0], abs=0.02)
    assert losses[1] != losses[0]  # it was a team


def test_what_is_lost_is_replaced_and_without_restarts_the_run_is_left_whole(
    tmp_path, cache, data, start, undisturbed
):
    run = Run(tmp_path / "run")
    words = (data, "--out", run.path, *QUICK, "--decode", "stream", "--workers", 1)
    process = start(*words, "--restarts", 1)
    wait_for_rows(run, 3, process)
    pids = children(process.pid)
    os.kill(pids[1], signal.SIGKILL)
    wait_for(lambda: len(set(children(process.pid)) - set(pids)) == 2, process)
    rows = len(run.read_metrics())
    wait_for_rows(run, rows + 1, process)
    decoder = children(children(process.pid)[1])
    assert len(decoder) == 1
    os.kill(decoder[0], signal.SIGKILL)
    _, said = process.communicate(timeout=200)
    assert process.returncode == 1
    assert "process 1 of 2 was killed by SIGKILL; all start again from the last check" in said
    assert f"resuming {run.path} at step" in said
    saved = run.load_checkpoint()["step"]
    assert said.splitlines()[-1] == (
        "wessl: process 1 of 2 ended: a process that decodes pictures ended with code -9; a "
        "negative code is a signal (-9 often means out of memory: use fewer --workers), and no "
        f"restart is left (--restarts 1). The run is saved at step {saved}; the same command goes "
        "on"
    )
    assert "Traceback" not in said

    before = [signal.getsignal(signum) for signum in HANDLED], dict(os.environ)
    same_encoder(finish(data, run.path, cache, devices=2), undisturbed)
    assert ([signal.getsignal(signum) for signum in HANDLED], dict(os.environ)) == before


def test_who_is_asked_to_stop_saves_or_says_why_not_even_without_the_launcher(
    tmp_path, data, start
):
    run = Run(tmp_path / "run")
    words = (data, "--out", run.path, *QUICK)
    process = start(*words)
    wait_for_rows(run, 3, process)
    pids = children(process.pid)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=200)
    assert process.returncode == 128 + signal.SIGTERM
    saved = run.load_checkpoint()["step"]
    last = f"wessl: stopped by SIGTERM, saved at step {saved}; the same command goes on"
    assert said.splitlines()[-1] == last
    assert "death signal" not in said
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]

    process = start(*words)
    wait_for_rows(run, saved + 2, process)
    pids = children(process.pid)
    process.kill()
    process.communicate(timeout=200)
    wait_for(lambda: not [pid for pid in pids if Path(f"/proc/{pid}").exists()])
    rows = len(run.read_metrics())
    saved = run.load_checkpoint()["step"]
    assert saved == rows
    assert not (run.path / "encoder.safetensors").exists()

    process = start(*words)
    wait_for_rows(run, saved + 2, process)
    # Files may grow no more, in the process that writes them: a full disk.
    resource.prlimit(children(process.pid)[0], resource.RLIMIT_FSIZE, (4096, 4096))
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=200)
    assert process.returncode == 1
    saved = run.load_checkpoint()["step"]
    assert said.splitlines()[-1].startswith("wessl: checkpoint not saved: ")
    assert said.endswith(f"run the same command again; the run is saved at step {saved}\n")


def test_mistakes_are_told_once_and_not_tried_again_in_a_thread_too(tmp_path, cache, capfd):
    call = dict(device="cpu", devices=2, cache=str(cache), batch_size=64, accumulate=3)
    with ThreadPoolExecutor(1) as thread:
        asked = thread.submit(wessl.pretrain, "builtin://digits/test", tmp_path / "run", **call)
        with pytest.raises(UserError, match=r"^--optim.accumulate 3 does not divide .* 64 / 2"):
            asked.result()
    assert capfd.readouterr().err == ""
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        (7, "^a batch of 64 cannot be split evenly over 7 processes"),
        (10**6, r"^--devices 1000000: so many processes take 150000.0 GB .* \d+ cores?$"),
    ],
)
def test_processes_that_would_start_in_vain_are_not_started(tmp_path, cache, devices, words):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with pytest.raises(UserError, match=words):
        finish("builtin://digits/test", tmp_path / "run", cache, devices)
    assert resource.getrusage(resource.RUSAGE_CHILDREN) == before


def test_more_processes_than_cores_are_warned_of(tmp_path, start):
    one = {min(os.sched_getaffinity(0))}
    wrong = ("--optim.accumulate", 3)  # which the first process finds at once
    process = start("builtin://digits/test", "--out", tmp_path / "run", *QUICK, *wrong)
    os.sched_setaffinity(process.pid, one)
    _, said = process.communicate(timeout=200)
    assert "warning: --devices 2 on 1 core: the processes will take turns" in said


def test_a_resume_that_is_refused_names_torchrun_where_that_began_the_run(tmp_path, cache):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    words = ["-m", "wessl", "pretrain", "builtin://digits/test", "--out", str(tmp_path / "run")]
    words += [*WORDS[:4], "--optim.epochs", "1"]
    environment = os.environ | {"WESSL_CACHE": str(cache), "OMP_NUM_THREADS": "1"}
    call = [sys.executable, *launcher, *words]
    begun = subprocess.run(call, env=environment, capture_output=True, text=True, timeout=200)
    assert begun.returncode == 0, begun.stderr
    again = [sys.executable, *words, "--seed", "1"]
    refused = subprocess.run(again, env=environment, capture_output=True, text=True, timeout=200)
    assert refused.returncode == 2
    typed = shlex.join(["torchrun", "--nproc-per-node=2", *words])
    assert refused.stderr.endswith(f"The run was begun with:\n  {typed}\n")


def test_a_resume_that_is_refused_names_the_script_that_asked_for_processes(tmp_path, cache):
    script = tmp_path / "train.py"
    script.write_text(
        "import sys, wessl\n"
        "if __name__ == '__main__':\n"
        f"    wessl.pretrain('builtin://digits/test', {str(tmp_path / 'run')!r}, device='cpu',\n"
        f"        devices=2, cache={str(cache)!r}, epochs=1, seed=int(sys.argv[1]), quiet=True)\n"
    )

    def call(seed: int) -> "subprocess.CompletedProcess[str]":
        words = [sys.executable, str(script), str(seed)]
        return subprocess.run(words, capture_output=True, text=True, timeout=200)

    assert call(0).returncode == 0
    said = call(1).stderr
    assert "seed: 0 in the run, 1 asked for" in said
    assert said.endswith(f"The run was begun with:\n  python {script} 0\n")
