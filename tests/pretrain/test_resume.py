"""Runs that are stopped, killed, damaged or out of space, and go on as if nothing had happened."""

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tiny import RECIPES, advance, build_trainer, clone, tiny_config, unequal

from wessl.errors import Failure, Interrupted
from wessl.pretrain.loop import train
from wessl.run import Run

HERE = Path(__file__).parent
CONV_CENTRED = {"target": "centering", "batch_norm": True, "heads.count": 3}
STEPS = 9


def quiet(row) -> None:
    pass


def begin(folder: Path) -> Run:
    return Run.create(folder / "run", {})


def short(**changes):
    """Three epochs of four steps."""
    return tiny_config(**{"lr": 1e-2, "warmup_epochs": 0.2, **changes})


@pytest.mark.parametrize(
    "changes",
    [RECIPES["dino-star-ent"], RECIPES["dino"], RECIPES["msn"], RECIPES["msn-star"], CONV_CENTRED],
    ids=["conv", "vit centred frozen", "vit masked batch-norm", "vit masked", "conv centred"],
)
def test_a_run_stopped_anywhere_goes_on_bit_for_bit(pictures, tmp_path, changes):
    config, run = short(**changes), begin(tmp_path)
    whole = build_trainer(pictures, config)
    states = []
    for _ in range(STEPS):
        advance(whole, 1)
        states.append(clone(whole.state()))
    for stop in random.Random(str(changes)).sample(range(1, STEPS), 3):
        first = build_trainer(pictures, config)
        advance(first, stop)
        run.save_checkpoint(first.step, first.state(), keep=1)
        second = build_trainer(pictures, config)
        for x in (*second.student.parameters(), *second.teacher.parameters(), *second.running):
            x.data.zero_()  # nothing but the checkpoint may count
        second.load_state(run.load_checkpoint())
        assert not unequal(second.state(), states[stop - 1])
        advance(second, STEPS - stop)
        assert not unequal(second.state(), states[-1])


def test_checkpoints_hold_everything_and_load_without_running_code(pictures, tmp_path):
    trainer, run = build_trainer(pictures, short(**RECIPES["dino"])), begin(tmp_path)
    advance(trainer, 6)
    path = run.save_checkpoint(6, trainer.state(), keep=2)
    state = torch.load(path, weights_only=True)
    assert state.keys() == {
        "step", "seconds", "skipped", "student", "teacher", "centering", "optimizer", "meter",
    }  # fmt: skip
    moments = state["optimizer"]["state"]
    assert len(moments) == len(trainer.trained)
    assert all(m.keys() == {"step", "exp_avg", "exp_avg_sq"} for m in moments.values())


def test_only_the_last_checkpoints_are_kept(pictures, tmp_path):
    trainer, run = build_trainer(pictures, short(), save_every=0, keep=3), begin(tmp_path)
    train(trainer, run, quiet)
    names = sorted(path.name for path in run.checkpoints.iterdir())
    assert names == [f"step-{s:09d}.{end}" for s in (10, 11, 12) for end in ("json", "pt")]


def test_by_default_two_are_kept_and_the_last_alone_of_a_finished_run(pictures, tmp_path):
    trainer, run, seen = build_trainer(pictures, short(), save_every=0), begin(tmp_path), []
    train(trainer, run, lambda row: seen.append(len(list(run.checkpoints.glob("*.pt")))))
    assert max(seen) == 2
    assert [path.name for path in run.checkpoints.glob("*.pt")] == ["step-000000012.pt"]


def test_a_damaged_last_checkpoint_leaves_the_one_before(tmp_path):
    run = begin(tmp_path)
    run.save_checkpoint(5, {"step": 5}, keep=2)
    flip(run.save_checkpoint(6, {"step": 6}, keep=2))
    run.keep_newest_checkpoint()
    assert len(list(run.checkpoints.glob("*.pt"))) == 2


def test_the_checkpoint_just_written_is_kept_whatever_the_number(tmp_path):
    run = begin(tmp_path)
    for keep in (0, 1):
        for step in (1, 2):
            run.save_checkpoint(step, {"step": step}, keep)
            assert run.load_checkpoint() == {"step": step}


# Damage


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def remove(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    ("harm", "ending", "words"),
    [
        (truncate, ".pt", "do not match its checksum"),
        (flip, ".pt", "do not match its checksum"),
        (empty, ".pt", "do not match its checksum"),
        (remove, ".json", "checksum is missing"),
        (empty, ".json", "checksum is damaged"),
        (lambda path: path.write_bytes(b"\xff\xfe{"), ".json", "checksum is damaged"),
        (lambda path: path.write_text("[]"), ".json", "checksum is damaged"),
        (lambda path: path.write_text("{}"), ".json", "checksum is damaged"),
    ],
)
def test_a_damaged_checkpoint_is_recognised_and_the_one_before_used(tmp_path, harm, ending, words):
    run = begin(tmp_path)
    for step in (5, 10):
        path = run.save_checkpoint(step, {"step": step, "x": torch.randn(500)}, keep=2)
    harm(path.with_suffix(ending))
    assert run.load_checkpoint()["step"] == 5
    log = (run.path / "train.log").read_text()
    assert f"{path.name} passed over" in log
    assert words in log
    harm((run.checkpoints / "step-000000005.pt").with_suffix(ending))
    assert run.load_checkpoint() is None


@pytest.mark.parametrize("keep", [1, 2])
def test_a_damaged_later_checkpoint_does_not_outlive_the_sound_one(tmp_path, keep):
    run = begin(tmp_path)
    run.save_checkpoint(5, {"step": 5}, keep=2)
    flip(run.save_checkpoint(10, {"step": 10}, keep=2))
    run.save_checkpoint(7, {"step": 7}, keep)
    assert run.load_checkpoint() == {"step": 7}
    assert len(list(run.checkpoints.glob("step-*.pt"))) == keep


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(pictures, tmp_path):
    whole = build_trainer(pictures, short())
    train(whole, begin(tmp_path / "whole"), quiet)
    run = begin(tmp_path)
    trainer = build_trainer(pictures, short())
    for stop in (3, 6):
        advance(trainer, 3)
        path = run.save_checkpoint(stop, trainer.state(), keep=2)
    truncate(path)
    again = build_trainer(pictures, short())
    again.load_state(run.load_checkpoint())
    assert again.step == 3
    train(again, run, quiet)
    assert not unequal(again.state(), whole.state())


# Signals


def interrupt_at(step: int, *signals: int):
    def report(row) -> None:
        if row.get("step") == step and "message" not in row:
            for signum in signals:
                os.kill(os.getpid(), signum)

    return report


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_run_asked_to_stop_saves_itself_and_goes_on_later(pictures, tmp_path, signum):
    whole = build_trainer(pictures, short())
    train(whole, begin(tmp_path / "whole"), quiet)
    handler, run = signal.getsignal(signum), begin(tmp_path)
    trainer = build_trainer(pictures, short(), log_every=1)
    with pytest.raises(
        Interrupted, match=f"stopped by {signum.name} at step 5; it is saved"
    ) as caught:
        train(trainer, run, interrupt_at(5, signum))
    assert caught.value.signum == signum
    assert signal.getsignal(signum) == handler
    assert not (run.path / "encoder.safetensors").exists()

    again = build_trainer(pictures, short(), log_every=1)
    again.load_state(run.load_checkpoint())
    assert again.step == 5
    assert again.seconds > 0
    train(again, run, quiet)
    assert not unequal(again.state(), whole.state())
    encoder = (run.path / "encoder.safetensors").read_bytes()
    assert encoder == (tmp_path / "whole" / "run" / "encoder.safetensors").read_bytes()
    assert [row["step"] for row in run.read_metrics()] == list(range(1, 13))


def test_usr1_saves_and_goes_on(pictures, tmp_path):
    trainer, run = build_trainer(pictures, short(), log_every=1, keep=2), begin(tmp_path)
    train(trainer, run, interrupt_at(5, signal.SIGUSR1))
    assert trainer.step == 12
    names = sorted(path.name for path in run.checkpoints.glob("*.pt"))
    assert names == ["step-000000005.pt", "step-000000012.pt"]


@pytest.mark.parametrize(
    "signals", [(signal.SIGUSR1, signal.SIGTERM), (signal.SIGTERM, signal.SIGUSR1)]
)
def test_a_wish_to_save_does_not_hide_a_wish_to_stop(pictures, tmp_path, signals):
    trainer, run = build_trainer(pictures, short(), log_every=1), begin(tmp_path)
    with pytest.raises(Interrupted):
        train(trainer, run, interrupt_at(5, *signals))
    assert 5 <= run.load_checkpoint()["step"] <= 6


def test_a_second_interrupt_does_not_wait(pictures, tmp_path):
    trainer, run = build_trainer(pictures, short(), log_every=1), begin(tmp_path)
    with pytest.raises(KeyboardInterrupt, match="at once; what was not saved is lost"):
        train(trainer, run, interrupt_at(5, signal.SIGINT, signal.SIGINT))


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_before_there_is_anything_new_to_save_a_stop_does_not_wait(pictures, tmp_path, signum):
    """As in the minutes in which a first step is compiled."""
    trainer, run = build_trainer(pictures, short(), log_every=1), begin(tmp_path)
    advance(trainer, 4)
    step = trainer.train_step

    def slow_first_step(views):
        os.kill(os.getpid(), signum)
        return step(views)

    trainer.train_step = slow_first_step
    with pytest.raises(Interrupted, match=f"by {signum.name} before the first step"):
        train(trainer, run, quiet)
    assert trainer.step == 4
    assert not list(run.checkpoints.iterdir())


def test_a_stop_at_the_last_step_finishes_the_run(pictures, tmp_path):
    trainer, run = build_trainer(pictures, short(), log_every=1), begin(tmp_path)
    train(trainer, run, interrupt_at(12, signal.SIGTERM))
    assert (run.path / "encoder.safetensors").exists()


# A full disk


def full(*args) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_in_mid_run_is_told_and_survived(pictures, tmp_path, monkeypatch):
    trainer, run = build_trainer(pictures, short(), save_every=0, log_every=1), begin(tmp_path)
    heard, saving = [], torch.save

    def report(row) -> None:
        heard.append(row.get("message", ""))
        step = row["step"]
        if step == 6:
            assert run.load_checkpoint()["step"] == 4
            assert not list(run.checkpoints.glob(".*"))
        monkeypatch.setattr(torch, "save", full if step in (5, 6, 7) else saving)

    train(trainer, run, report)
    told = [words for words in heard if words]
    assert len(told) == 3
    assert all("checkpoint not saved" in words for words in told)
    assert all("No space left on device" in words for words in told)
    assert all("the one before is intact" in words for words in told)
    assert run.load_checkpoint()["step"] == 12


def test_a_full_disk_does_not_turn_usr1_into_an_end(pictures, tmp_path, monkeypatch):
    trainer, run = build_trainer(pictures, short(), log_every=1), begin(tmp_path)
    saving, ask = torch.save, interrupt_at(5, signal.SIGUSR1)

    def report(row) -> None:
        monkeypatch.setattr(torch, "save", full if row["step"] == 5 else saving)
        ask(row)

    train(trainer, run, report)
    assert trainer.step == 12


@pytest.mark.parametrize("when", [5, 12])
def test_a_disk_full_when_the_run_must_be_saved_ends_it(pictures, tmp_path, monkeypatch, when):
    trainer, run = build_trainer(pictures, short(), log_every=1), begin(tmp_path)
    run.save_checkpoint(0, trainer.state(), keep=2)
    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(Failure, match="Free some space and run the same command again"):
        train(trainer, run, interrupt_at(when, signal.SIGTERM))
    assert run.load_checkpoint()["step"] == 0
    assert sorted(path.suffix for path in run.checkpoints.iterdir()) == [".json", ".pt"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_metrics_and_log_that_cannot_be_written_do_not_end_a_run(pictures, tmp_path):
    trainer, run = build_trainer(pictures, short(), log_every=4), begin(tmp_path)
    heard = []

    def report(row) -> None:
        heard.append(row)
        for name in ("metrics.jsonl", "train.log"):  # full from the first row on
            (run.path / name).unlink(missing_ok=True)
            (run.path / name).symlink_to("/dev/full")

    train(trainer, run, report)
    run.log("this goes nowhere, and harms nobody")
    assert [row["step"] for row in heard if "loss" in row] == [4, 8, 12]
    told = [row["message"] for row in heard if "message" in row]
    assert len(told) == 2
    assert all("metrics not written" in words and "No space left" in words for words in told)


# Processes of their own


class Trained:
    """A process that trains small runs, each in a child of its own (``train_small.py``)."""

    def __init__(self):
        command = [sys.executable, str(HERE / "train_small.py")]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, env=environment
        )

    def __call__(self, folder: Path, out: Path, *more: str, kill_at=None, delay=0.0):
        """Starts or resumes a run; returns its exit code and all it said."""
        print(folder, out, *more, file=self.process.stdin, flush=True)
        pid, lines = 0, []
        for line in map(str.strip, self.process.stdout):
            if line.startswith("exit "):
                return int(line.removeprefix("exit ")), lines
            if line.startswith("pid "):
                pid = int(line.removeprefix("pid "))
            else:
                lines.append(line)
            if len(lines) == kill_at and pid:
                time.sleep(delay)
                os.kill(pid, signal.SIGKILL)
        raise AssertionError(f"the training process ended: {lines}")

    def close(self) -> None:
        self.process.communicate(timeout=10)


@pytest.fixture(scope="module")
def trained():
    process = Trained()
    yield process
    process.close()


def test_a_run_killed_at_ten_random_moments_ends_with_the_same_encoder(trained, tmp_path):
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    rng = random.Random(seed)
    code, lines = trained(tmp_path, tmp_path / "whole")
    assert (code, lines[0], lines[-1]) == (0, "from 0", "step 40")

    run, begun = Run(tmp_path / "killed"), []
    for _ in range(10):  # a step and its checkpoint take some milliseconds
        code, lines = trained(
            tmp_path, run.path, kill_at=rng.randint(2, 4), delay=0.03 * rng.random()
        )
        assert code == -signal.SIGKILL
        begun.append(int(lines[0].removeprefix("from ")))
    code, lines = trained(tmp_path, run.path)
    assert code == 0
    assert begun == sorted(begun)
    assert int(lines[0].removeprefix("from ")) > 5

    files = [folder / "encoder.safetensors" for folder in (tmp_path / "whole", run.path)]
    assert files[0].read_bytes() == files[1].read_bytes()
    states = [Run(folder).load_checkpoint() for folder in (tmp_path / "whole", run.path)]
    assert not unequal(*states)
    assert not list(run.path.rglob("*.tmp"))
    expected = Run(tmp_path / "whole").read_metrics()
    losses = [(row["step"], row["loss"]) for row in run.read_metrics()]
    assert losses == [(row["step"], row["loss"]) for row in expected]


def test_a_short_run_killed_after_its_first_tenth_goes_on_from_there(trained, tmp_path):
    code, _ = trained(tmp_path, tmp_path / "whole", "default")
    assert code == 0
    run = Run(tmp_path / "killed")
    code, lines = trained(tmp_path, run.path, "default", kill_at=1 + 6)
    assert code == -signal.SIGKILL
    assert lines[:7] == ["from 0", *(f"step {step}" for step in range(1, 7))]
    code, lines = trained(tmp_path, run.path, "default")
    assert (code, lines[-1]) == (0, "step 40")
    assert int(lines[0].removeprefix("from ")) >= 4

    files = [folder / "encoder.safetensors" for folder in (tmp_path / "whole", run.path)]
    assert files[0].read_bytes() == files[1].read_bytes()
    states = [Run(folder).load_checkpoint() for folder in (tmp_path / "whole", run.path)]
    assert not unequal(*states)


def test_files_that_a_kill_left_half_written_are_cleared(tmp_path):
    run = begin(tmp_path)
    (run.checkpoints / ".step-000000003.pt.4711.tmp").write_bytes(b"half")
    run.save_checkpoint(4, {"step": 4}, keep=2)
    assert sorted(path.suffix for path in run.checkpoints.iterdir()) == [".json", ".pt"]


def test_a_process_that_may_write_no_more_keeps_its_checkpoint_and_says_so(trained, tmp_path):
    run = Run(tmp_path / "run")
    code, lines = trained(tmp_path, run.path, "limited")
    assert code == 1  # a failure, and no mistake
    told = [line for line in lines if line.startswith("checkpoint not saved")]
    assert len(told) == 3 + 1
    assert all("File too large; the one before is intact" in line for line in told)
    assert lines[-1].startswith("error checkpoint not saved")
    assert "run the same command again" in lines[-1]
    assert run.load_checkpoint()["step"] == 38
    assert not list(run.path.rglob("*.tmp"))

    code, lines = trained(tmp_path, run.path)
    assert (code, lines[0], lines[-1]) == (0, "from 38", "step 40")
