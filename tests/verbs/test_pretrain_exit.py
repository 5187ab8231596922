"""How the command ends: 2 for a mistake, 1 for a failure, 128 + n for signal n, always in words."""

import resource
import signal
import time

import numpy as np
import pytest
from PIL import Image
from small_runs import DIGITS, command, photographs, start

from wessl.run import Run


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WESSL_CACHE", str(tmp_path / "cache"))


def limit(kind: int, size: int):
    return lambda: resource.setrlimit(kind, (size, size))


def test_a_run_of_nothing_but_nan_is_a_failure(tmp_path):
    words = (*DIGITS, tmp_path / "run", "--optim.epochs", 0.2)
    code, _, said = command(*words, "--loss.student-temperature", 1e-45)
    assert code == 1
    assert "NaN or infinite" in said
    assert "Traceback" not in said


def test_a_full_disk_is_a_failure_that_leaves_nothing_half_written(tmp_path):
    words = (*DIGITS, tmp_path / "run", "--optim.epochs", 0.2)
    code, _, said = command(*words, preexec_fn=limit(resource.RLIMIT_FSIZE, 100_000))
    assert code == 1
    assert "checkpoint not saved" in said
    assert "Free some space and run the same command again" in said
    assert not list((tmp_path / "run").rglob("*.tmp"))
    code, _, _ = command(*words)
    assert code == 0


def test_too_little_memory_is_a_failure_with_a_batch_that_would_fit(tmp_path):
    words = ("pretrain", "builtin://digits/test", "--out", tmp_path / "run", "--device", "cpu")
    large = ("--optim.batch-size", 500, "--heads.codes", 8192)
    code, _, said = command(*words, *large, preexec_fn=limit(resource.RLIMIT_AS, 3 * 10**9))
    assert code == 1, said
    last = said.splitlines()[-1]
    assert "out of memory on cpu with --optim.batch-size 500" in last
    assert "try --optim.batch-size" in last
    assert "--optim.accumulate" in last


def test_too_many_broken_pictures_are_a_failure_and_a_wrong_flag_is_a_mistake(tmp_path):
    folder = photographs(tmp_path / "photos", n=8)
    for path in (folder / "cat").iterdir():
        path.write_bytes(b"broken")
    code, _, said = command("pretrain", folder, "--out", tmp_path / "run")
    assert code == 1
    assert "of 8 pictures cannot be decoded, more than --max-bad 0.05" in said
    code, _, said = command("pretrain", folder, "--out", tmp_path / "run", "--max-bad", -1)
    assert code == 2
    assert "--max-bad must be at least 0" in said
    assert not (tmp_path / "run").exists()


def many(folder):
    """Enough pictures to be decoded by other processes, for some seconds."""
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (600, 600, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(folder / "0000.png")
    for i in range(1, 700):
        (folder / f"{i:04d}.png").hardlink_to(folder / "0000.png")
    return folder


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_decoding_ends_it_cleanly(tmp_path, signum):
    words = ("pretrain", many(tmp_path / "photos"), "--out", tmp_path / "run", "--workers", 1)
    process = start(*words)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "cache").glob("*.part-*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGUSR1)  # there is nothing to save yet, and it goes on
    time.sleep(0.2)
    process.send_signal(signum)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signum
    assert said.splitlines()[-1] == f"wessl: stopped by {signum.name} at once"
    assert not list((tmp_path / "cache").iterdir())
    assert not (tmp_path / "run").exists()


def test_a_signal_while_training_saves_and_the_same_command_goes_on(tmp_path):
    run = Run(tmp_path / "run")
    words = (*DIGITS, run.path, "--optim.epochs", 20, "--log-every", 1)
    process = start(*words)
    deadline = time.monotonic() + 60
    while len(run.read_metrics()) < 3 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    saved = run.load_checkpoint()["step"]
    assert f"stopped by SIGTERM at step {saved}; it is saved, and the same" in said
    process = start(*words)
    while len(run.read_metrics()) < saved + 1 and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGINT
    assert f"resuming {run.path} at step {saved}" in said
