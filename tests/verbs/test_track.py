"""Trackers hear every row once, whatever happens to the run or to them; read back from disk."""

import importlib.util
import json
import math
import re
import signal
import sys
import time
import tomllib
from pathlib import Path

import pytest
from small_runs import DIGITS, QUICK, command, start
from tracked_runs import READERS

import wessl
from wessl.errors import UserError
from wessl.run import Run
from wessl.track import report as tracking
from wessl.track.report import tracked

INSTALLED = [name for name in READERS if importlib.util.find_spec(name)]
HEADER = {"config": {"seed": 7}}
STEPS = 140
"""Of 7 an epoch: enough that a run is still far from its end when it is killed."""

every_tracker = pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=pytest.mark.skipif(
                name not in INSTALLED, reason=f"needs a package: pip install {name}"
            ),
        )
        for name in READERS
    ],
)


def expected(run):
    """Every number of metrics.jsonl by name and step, lists taken apart."""
    found = {}
    for row in run.read_metrics():
        values = {}
        for key, value in row["probe"].items() if "probe" in row else row.items():
            if isinstance(value, list):
                values |= {f"{key}/{i:02d}": item for i, item in enumerate(value)}
            elif key != "step" and value is not None:
                values["probe/" * ("probe" in row) + key] = value
        for key, value in values.items():
            found.setdefault(key, []).append((row["step"], pytest.approx(float(value), rel=1e-6)))
    return found


@pytest.fixture(scope="module")
def killed_and_resumed(tmp_path_factory):
    """A tracked run that was killed well after its checkpoint, then went on to its end."""
    folder = tmp_path_factory.mktemp("tracked")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WESSL_CACHE", str(folder / "cache"))
        patch.setenv("TRACKIO_DIR", str(folder / "trackio"))
        patch.delenv("WANDB_MODE", raising=False)
        run = Run(folder / "run")
        flags = ("--epochs", str(STEPS // 7), "--log-every", "1", "--device", "cpu")
        words = (*DIGITS, run.path, *flags, "--track", *INSTALLED)
        process = start(*words)
        wait_for(process, lambda: len(run.read_metrics()) > 3)
        process.send_signal(signal.SIGUSR1)  # save now
        wait_for(process, lambda: rows_since_checkpoint(run) > 3)
        if "trackio" in INSTALLED:
            time.sleep(1)  # it writes twice a second
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert process.returncode == -signal.SIGKILL, "the run ended before it could be killed"
        code, _, err = command(*words)
        assert code == 0, err
        assert "resuming" in err
    return run, folder / "trackio"


def wait_for(process, happened):
    while process.poll() is None and not happened():
        time.sleep(0.02)


def rows_since_checkpoint(run):
    saved = [json.loads(path.read_text())["step"] for path in run.checkpoints.glob("*.json")]
    return sum(row["step"] > max(saved) for row in run.read_metrics()) if saved else 0


@every_tracker
def test_every_number_is_told_once_although_the_run_was_killed(killed_and_resumed, name):
    run, home = killed_and_resumed
    written = READERS[name](run.path, home)
    wanted = expected(run)
    timed = {"ms", "images_per_second", "eta", "data_wait"}  # differ when a step is done again
    assert written.scalars.keys() == wanted.keys()
    assert len(wanted["loss"]) == STEPS
    assert "probe/knn" in wanted
    for key in wanted.keys() - timed:
        assert written.scalars[key] == wanted[key]
    for key in timed:
        assert [step for step, _ in written.scalars[key]] == [step for step, _ in wanted[key]]


@every_tracker
def test_config_and_final_results_are_told(killed_and_resumed, name):
    run, home = killed_and_resumed
    written = READERS[name](run.path, home)
    assert written.config["config"]["heads"]["count"] == 2
    assert written.config["data"]["pictures"] == 500
    probes = [row["probe"]["knn"] for row in run.read_metrics() if "probe" in row]
    assert written.final["final/probe/knn"] == pytest.approx(probes[-1])
    assert math.isfinite(written.final["final/loss"])


@every_tracker
def test_messages_are_told_as_text(tmp_path, monkeypatch, name):
    program = (
        "import sys\nfrom wessl.run import Run\nfrom wessl.track.report import tracked\n"
        f"run = Run.create(sys.argv[1], {HEADER!r})\n"
        f"with tracked(print, [{name!r}], run, {HEADER!r}, 0, print) as report:\n"
        "    for step in (1, 2):\n"
        "        run.add_metrics(row := dict(step=step, loss=1.0 / step))\n"
        "        report(row)\n"
        "        report({'message': f'health: collapse at {step}'})\n"
        "        report({'message': f'health: no rank at {step}'})\n"
    )
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    monkeypatch.delenv("WANDB_MODE", raising=False)
    code, _, err = command_of(program, tmp_path / "run")
    assert code == 0, err
    written = READERS[name](tmp_path / "run", tmp_path / "trackio")
    said = [f"health: {what} at {step}" for step in (1, 2) for what in ("collapse", "no rank")]
    assert written.messages == said
    assert written.scalars == {"loss": [(1, 1.0), (2, 0.5)]}


def command_of(program, *words):
    """A program in a process of its own, since trackio reads its folder when it is imported."""
    import subprocess

    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


def test_nothing_is_tracked_without_the_flag(tmp_path, monkeypatch):
    monkeypatch.setenv("WESSL_CACHE", str(tmp_path / "cache"))
    run = wessl.pretrain("builtin://digits/test", tmp_path / "run", **QUICK)
    assert not {"tensorboard", "wandb", "track.json"} & {p.name for p in run.path.iterdir()}


def test_a_tracker_that_cannot_begin_is_said_once_and_filled_in_later(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard", reason="needs a package: pip install tensorboard")
    monkeypatch.setenv("WESSL_CACHE", str(tmp_path / "cache"))
    in_the_way = tmp_path / "run" / "tensorboard"
    in_the_way.parent.mkdir()
    in_the_way.write_text("a file where a folder should be")
    asked = QUICK | dict(log_every=2, track=("tensorboard",))
    run = wessl.pretrain("builtin://digits/test", tmp_path / "run", **asked)
    assert (run.path / "encoder.safetensors").exists()
    assert (run.path / "train.log").read_text().count("--track tensorboard failed") == 1
    in_the_way.unlink()
    wessl.pretrain("builtin://digits/test", tmp_path / "run", **asked)
    written = READERS["tensorboard"](run.path, tmp_path)
    assert written.scalars == expected(run)
    assert "final/loss" in written.final


class OnAFullDisk:
    """A tracker whose file takes a row and then no more."""

    keeps, rewinds, holds, session, where = True, False, None, "", "nowhere"

    def __init__(self, start):
        self.rows = 0

    def scalars(self, step, values):
        self.rows += 1
        if self.rows > 1:
            with open("/dev/full", "w") as file:
                file.write("no space")

    def close(self, failed):
        raise OSError("closing fails too")

    message = final = scalars


def test_a_tracker_that_fails_midway_is_said_once_and_stops_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(tracking.TRACKERS, "trackio", OnAFullDisk)
    run, heard, said = Run.create(tmp_path / "run", HEADER), [], []
    with tracked(heard.append, ["trackio"], run, HEADER, 0, said.append) as report:
        for step in range(1, 6):
            report(dict(step=step, loss=0.5))
    assert [row["step"] for row in heard] == [1, 2, 3, 4, 5]
    assert said[0] == "tracking: nowhere"
    assert len(said) == 2
    assert "--track trackio failed (OSError: [Errno 28] No space left on device)" in said[1]
    assert json.loads((run.path / "track.json").read_text())["trackio"]["told"] == [1, 0]


def test_an_error_in_training_comes_through(tmp_path, monkeypatch):
    monkeypatch.setitem(tracking.TRACKERS, "trackio", OnAFullDisk)
    run = Run.create(tmp_path / "run", HEADER)
    with (
        pytest.raises(ZeroDivisionError),
        tracked(print, ["trackio"], run, HEADER, 0, print) as report,
    ):
        report(dict(step=1, loss=1 / 0))


@pytest.mark.parametrize("name", READERS)
def test_a_missing_package_is_named_before_anything_is_written(tmp_path, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UserError, match=f"--track {name} .* pip install {name}"):
        wessl.pretrain("builtin://digits/test", tmp_path / "run", **QUICK, track=(name,))
    assert not (tmp_path / "run").exists()


def test_trackers_that_install_beside_all_else_are_among_the_packages_of_the_tests():
    """Not Trackio, which wants an older Pillow; else their tests here would be skipped unseen."""
    root = Path(__file__).parents[2]
    dev = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {re.split("[<>=]", line)[0] for line in dev["dev"]}
    pinned = {line.partition("==")[0] for line in (root / "constraints.txt").read_text().split()}
    assert READERS.keys() - {"trackio"} <= named & pinned


def test_an_unknown_tracker_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"track.*'tensorboard', 'wandb', 'trackio'"):
        wessl.pretrain("builtin://digits/test", tmp_path / "run", **QUICK, track=("mlflow",))


def test_of_many_processes_only_the_first_tracks(tmp_path):
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    run, said = Run.create(tmp_path / "run", HEADER), []
    for rank in (1, 0):
        dist.init_process_group("fake", rank=rank, world_size=2, store=FakeStore())
        try:
            with tracked(print, INSTALLED[:1], run, HEADER, 0, said.append) as report:
                report(dict(step=1, loss=1.0))
            assert (run.path / "track.json").exists() == (rank == 0)
        finally:
            dist.destroy_process_group()
    assert len(said) == len(INSTALLED[:1])
