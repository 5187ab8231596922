"""``--devices N``: the same command in N processes, started again when one of them is lost."""

import contextlib
import json
import logging
import os
import pickle
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from wessl import plan
from wessl.config import Options
from wessl.errors import Failure, Interrupted, UserError
from wessl.pretrain.parallel import Elsewhere, Team, join
from wessl.pretrain.place import Place, find_place
from wessl.run import Run

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
"""Where torch's launcher looks for what a process died of."""
LAUNCHED = "WESSL_LAUNCHED"
"""Set for processes that were started here, which leave the last word to the launcher."""


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


@contextlib.contextmanager
def joined(options: Options) -> Iterator[tuple[Team, torch.device]]:
    """The team this process belongs to, and its own device; what goes wrong is told once."""
    place = find_place()
    device = plan.find_device(options.device)
    if place is None:
        with join(None, device, options.timeout) as team:
            yield team, device
        return
    try:
        device = own_device(device, options, place)
        with join(place, device, options.timeout) as team:
            yield team, device
    except UserError as error:
        leave_word(str(error), final=True)
        if isinstance(error, Elsewhere) or LAUNCHED in os.environ:
            sys.exit(error.exit_code)
        raise
    except Interrupted as stopped:
        if place.rank or LAUNCHED in os.environ:
            sys.exit(128 + stopped.signum)
        raise
    except (RuntimeError, dist.DistError) as error:
        if not is_lost_connection(error):
            raise
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # it ends in any case
        words = f"process {place.rank} of {place.world} lost the others: {first_line(error)}"
        leave_word(words, final=False)
        if LAUNCHED in os.environ:
            sys.exit(1)
        raise Failure(words) from error


def own_device(device: torch.device, options: Options, place: Place) -> torch.device:
    if device.type != "cuda":
        return device
    if ":" in options.device:
        raise UserError(f"--device {options.device} is one GPU, for all processes; write cuda")
    there = torch.cuda.device_count()
    if there > 1 and place.local_rank >= there:
        raise UserError(f"more processes on this machine than its {there} GPUs")
    return torch.device("cuda", place.local_rank if there > 1 else 0)


def is_lost_connection(error: BaseException) -> bool:
    """gloo has no error of its own: its words are all there is to know it by."""
    known = ("gloo", "Connection closed by peer", "Connection reset", "Broken pipe", "Timed out")
    return isinstance(error, dist.DistError) or any(word in str(error) for word in known)


def first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0].rpartition("] ")[2][:200]


def leave_word(words: str, final: bool) -> None:
    """For the launcher: what happened, and whether to try again would be in vain."""
    path = os.environ.get(ERROR_FILE)
    if path is not None:
        message = {"message": words, "extraInfo": {"timestamp": str(int(time.time()))}}
        with contextlib.suppress(OSError):
            Path(path).write_text(json.dumps({"message": message, "final": final}))


def run_command(options: Options, out: str | Path) -> None:
    """The words of this command again, in every process."""
    launch(options, out, ["-m", "wessl", *sys.argv[1:]])


def run_call(options: Options, out: str | Path, call: dict[str, Any]) -> None:
    """A call from Python, handed over in a file: the caller's script is not run again."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "call"
        path.write_bytes(pickle.dumps(call))
        launch(options, out, ["-m", "wessl.verbs.launch", str(path)])


def launch(options: Options, out: str | Path, words: list[str]) -> None:
    """Runs to the end, or raises what ended it."""
    # torch's elastic launcher takes a moment to import.
    from torch.distributed.elastic.multiprocessing import SignalException

    from wessl.verbs.agent import Agent

    count = wanted(options)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (cores or 1) // count)))
    os.environ[LAUNCHED] = "1"
    logging.getLogger("torch.distributed").setLevel(logging.CRITICAL)  # we say it in our words
    agent = Agent(count, [sys.executable, *words], options, tell)
    try:
        failure = agent.work()
    except SignalException as stopped:
        raise Stopped(stopped.sigval, f"{saved(out)}; the same command goes on") from None
    finally:
        os.environ.pop(LAUNCHED)
    if failure is None:
        return
    if failure.final:
        raise Failure(failure.words) if failure.code == 1 else UserError(failure.words)
    raise Failure(
        f"{failure.words}, and no restart is left (--restarts {options.restarts}). The run is "
        f"{saved(out)}; the same command goes on"
    )


class Stopped(Interrupted):
    def __str__(self) -> str:
        return f"stopped by {signal.Signals(self.signum).name}, {self.words}"


def saved(out: str | Path) -> str:
    steps = [int(path.stem.split("-")[1]) for path in Run(out).checkpoints.glob("step-*.pt")]
    return f"saved at step {max(steps)}" if steps else "not saved yet"


def tell(words: str) -> None:
    print(f"wessl: {words}", file=sys.stderr, flush=True)


def main() -> None:
    from wessl.verbs.pretrain import pretrain

    call = pickle.loads(Path(sys.argv[1]).read_bytes())
    signal.signal(signal.SIGTERM, lambda signum, _: sys.exit(128 + signum))
    try:
        pretrain(**call)
    except UserError as error:
        sys.exit(error.exit_code)
    except Interrupted as stopped:
        sys.exit(128 + stopped.signum)


if __name__ == "__main__":
    main()
