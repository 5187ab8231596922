"""``--devices N``: the same command in N processes, started again when one of them is lost."""

import contextlib
import logging
import os
import pickle
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import torch

from wessl import plan
from wessl.config import Options
from wessl.devices import SHORT_WAIT, usable_cores, wait_briefly
from wessl.errors import Failure, Interrupted, UserError
from wessl.pretrain.place import find_place
from wessl.run import Run
from wessl.verbs.launching.launched import LAUNCHED
from wessl.verbs.pretraining.launch_checks import crowded

DISTRIBUTED = "torch.distributed"


def wanted(options: Options) -> int:
    """Processes to start; 1 for a process that was itself started as one of many."""
    place = find_place()
    if place is not None:
        if options.devices not in (1, "auto", place.world):
            raise UserError(
                f"--devices {options.devices}: {place.world} processes were started already; "
                "leave it out under torchrun or srun"
            )
        return 1
    if options.devices == 1:
        return 1
    cuda = plan.find_device(options.device).type == "cuda"
    there = torch.cuda.device_count() if cuda else 1
    count = there if options.devices == "auto" else options.devices
    if count < 1:
        raise UserError(f"--devices must be a number of processes or auto, got {count}")
    if cuda and count > there:
        raise UserError(
            f"--devices {count}, but there are {there} GPUs; ask for at most {there}, or add "
            "--device cpu"
        )
    if cuda and count > 1 and ":" in options.device:
        raise UserError(f"--device {options.device} is one GPU; write --device cuda --devices N")
    return count


def run_command(options: Options, out: str | Path) -> None:
    """The words of this command again, in every process."""
    launch(options, out, ["-m", "wessl", *sys.argv[1:]])


def run_call(options: Options, out: str | Path, call: dict[str, Any]) -> None:
    """A call from Python, handed over in a file: the caller's script is not run again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "call"
        path.write_bytes(pickle.dumps((sys.argv, call)))
        launch(options, out, ["-m", "wessl.verbs.launching.launch", str(path)])


def launch(options: Options, out: str | Path, words: list[str]) -> None:
    """Runs to the end, or raises what ended it."""
    # torch's elastic launcher takes a moment to import.
    from torch.distributed.elastic.multiprocessing import SignalException

    from wessl.verbs.launching.agent import Agent

    count = wanted(options)
    if plan.find_device(options.device).type == "cpu" and (warning := crowded(count)):
        tell(warning)
    with told_to_processes(count), silent_torch():
        agent = Agent(count, [sys.executable, *words], options, tell)
        try:
            failure = agent.work()
        except SignalException as stopped:
            failure = agent.ended
            if failure is None:
                raise Stopped(stopped.sigval, f"{saved(out)}; the same command goes on") from None
    if failure is None:
        return
    if failure.final and failure.code != 1:
        raise UserError(failure.words)
    if failure.final:
        where = f"; the run is {saved(out)}" if step_saved(out) is not None else ""
        raise Failure(failure.words + where)
    raise Failure(
        f"{failure.words}, and no restart is left (--restarts {options.restarts}). The run is "
        f"{saved(out)}; the same command goes on"
    )


@contextlib.contextmanager
def told_to_processes(count: int) -> Iterator[None]:
    """What they find in their environment; the caller's own is as before when they are gone."""
    before = dict(os.environ)
    os.environ[LAUNCHED] = str(os.getpid())
    threads = before.get("OMP_NUM_THREADS") or str(max(1, usable_cores() // count))
    os.environ["OMP_NUM_THREADS"] = threads
    wait_briefly(os.environ)
    try:
        yield
    finally:
        for name in (LAUNCHED, "OMP_NUM_THREADS", *SHORT_WAIT):
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]


@contextlib.contextmanager
def silent_torch() -> Iterator[None]:
    """What its launcher has to say we say in our words; many of its loggers have own levels."""
    known = [name for name in logging.root.manager.loggerDict if name.startswith(DISTRIBUTED)]
    loggers = [logging.getLogger(name) for name in (DISTRIBUTED, *known)]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class Stopped(Interrupted):
    def __str__(self) -> str:
        return f"stopped by {signal.Signals(self.signum).name}, {self.words}"


def saved(out: str | Path) -> str:
    step = step_saved(out)
    return "not saved yet" if step is None else f"saved at step {step}"


def step_saved(out: str | Path) -> int | None:
    steps = (int(path.stem.split("-")[1]) for path in Run(out).checkpoints.glob("step-*.pt"))
    return max(steps, default=None)


def tell(words: str) -> None:
    print(f"wessl: {words}", file=sys.stderr, flush=True)


def main() -> None:
    from wessl.verbs.pretrain import pretrain

    def stop(signum: int, frame: FrameType | None) -> NoReturn:
        raise Interrupted(signum, "at once")

    # Runs record what the user typed.
    sys.argv[:], call = pickle.loads(Path(sys.argv[1]).read_bytes())
    signal.signal(signal.SIGTERM, stop)
    try:
        pretrain(**call)
    except UserError as error:
        sys.exit(error.exit_code)
    except Interrupted as stopped:
        sys.exit(128 + stopped.signum)


if __name__ == "__main__":
    main()
