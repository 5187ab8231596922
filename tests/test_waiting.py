"""How long torch's threads spin while they wait for each other."""

import os
import subprocess
import sys

import pytest

from wessl.devices import SHORT_WAIT, wait_briefly


def test_a_user_who_has_said_how_to_wait_is_heard():
    for name in SHORT_WAIT:
        own = {name: "own"}
        wait_briefly(own)
        assert own == {name: "own"}
    nothing: dict[str, str] = {"PATH": "/bin"}
    wait_briefly(nothing)
    assert nothing == {"PATH": "/bin", **SHORT_WAIT}


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
