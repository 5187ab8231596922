"""How long torch's threads spin while they wait for each other."""

import os
import subprocess
import sys

import pytest

from wessl.devices import SHORT_WAIT, wait_briefly
from wessl.verbs.launching.launch import told_to_processes


def test_a_user_who_has_said_how_to_wait_is_heard():
    for name in SHORT_WAIT:
        own = {name: "own"}
        wait_briefly(own)
        assert own == {name: "own"}
    nothing: dict[str, str] = {"PATH": "/bin"}
    wait_briefly(nothing)
    assert nothing == {"PATH": "/bin", **SHORT_WAIT}


@pytest.mark.parametrize("own", [{}, {"GOMP_SPINCOUNT": "7", "OMP_NUM_THREADS": "3"}])
def test_processes_started_from_python_hear_it_and_the_caller_stays_as_before(monkeypatch, own):
    for name in (*SHORT_WAIT, "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with told_to_processes(2):
        told = {name: os.environ.get(name) for name in SHORT_WAIT}
        threads = os.environ["OMP_NUM_THREADS"]
    assert os.environ == before
    assert told == (dict.fromkeys(SHORT_WAIT) | {"GOMP_SPINCOUNT": "7"} if own else SHORT_WAIT)
    assert int(threads) == 3 if own else int(threads) >= 1


@pytest.mark.skipif(sys.platform != "linux", reason="GNU's OpenMP tells what it has read")
def test_torch_has_heard_it_before_the_command_does_anything():
    environment = {k: v for k, v in os.environ.items() if k not in SHORT_WAIT}
    asked = [
        sys.executable,
        "-m",
        "wessl",
        "bench",
        "--device",
        "none",
    ]  # imports torch to refuse it
    shown = subprocess.run(
        asked, capture_output=True, text=True, env=environment | {"OMP_DISPLAY_ENV": "verbose"}
    ).stderr
    if "OPENMP DISPLAY" not in shown:
        pytest.skip("another OpenMP")
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in shown
    assert "GOMP_SPINCOUNT = '1000'" in shown
