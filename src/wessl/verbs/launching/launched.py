"""One of many processes: its team, its device, and the word it leaves when it ends early."""

import contextlib
import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist

from wessl import plan
from wessl.config import Options
from wessl.devices import make_current
from wessl.errors import Interrupted, Lost, UserError
from wessl.pretrain.parallel import Elsewhere, Team, join
from wessl.pretrain.place import Place, find_place

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
"""Where torch's launcher looks for what a process died of."""
LAUNCHED = "WESSL_LAUNCHED"
"""Set for processes that were started here, which leave the last word to the launcher: its pid."""
LOST = (
    "gloo", "Connection closed by peer", "Connection reset", "Broken pipe", "Timed out",
    "pair closure",
)  # fmt: skip


in_a_team = False
"""Whether this process has been one of many: when one fails, it ends by ``leave``."""


@contextlib.contextmanager
def joined(options: Options) -> Iterator[tuple[Team, torch.device]]:
    """The team this process belongs to, and its own device; what goes wrong is told once."""
    place = find_place()
    device = plan.find_device(options.device)
    if place is None:
        make_current(device)
        with join(None, device, options.timeout) as team:
            yield team, device
        return
    global in_a_team
    in_a_team = True
    with telling(place):
        end_with_the_launcher()
        device = own_device(device, options, place)
        with join(place, device, options.timeout) as team, telling(place):
            yield team, device


@contextlib.contextmanager
def telling(place: Place) -> Iterator[None]:
    """What ends a process is told the launcher; one that was started here ends on the spot.

    Whatever it had open is closed by then, but for its team: to leave that takes torch's threads a
    moment, in which the launcher's signal, or another process that is gone, may abort it.
    """
    launched = LAUNCHED in os.environ
    try:
        yield
    except UserError as error:
        leave_word(str(error), final=not isinstance(error, Lost), code=error.exit_code)
        if launched:
            leave(error.exit_code)
        if isinstance(error, Elsewhere):
            sys.exit(error.exit_code)
        raise
    except Interrupted as stopped:
        if launched:
            leave(128 + stopped.signum)
        if place.rank:
            sys.exit(128 + stopped.signum)
        raise
    except (RuntimeError, dist.DistError) as error:
        if not is_lost_connection(error):
            raise
        words = f"process {place.rank} of {place.world} lost the others: {first_line(error)}"
        leave_word(words, final=False, bereft=True)
        if launched:
            leave(1)
        raise Lost(words) from error


def launcher(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The words before a command that torchrun or srun started; none where its own words will do.

    Where machines meet is not told to their processes: that is left to fill in.
    """
    place = find_place(environment)
    if place is None or LAUNCHED in environment:
        return []
    if "TORCHELASTIC_RUN_ID" in environment:
        machines = int(environment.get("GROUP_WORLD_SIZE", 1))
        words = ["torchrun", f"--nproc-per-node={environment['LOCAL_WORLD_SIZE']}"]
        if machines > 1:
            words[1:1] = [f"--nnodes={machines}"]
            words += ["--rdzv-backend=c10d", "--rdzv-endpoint=HOST:PORT"]
        return words
    return ["srun", f"--ntasks={place.world}"] if place.address != "env://" else []


def end_with_the_launcher() -> None:
    """A launcher that is killed outright can tell nobody: the system then asks us to stop."""
    parent = os.environ.get(LAUNCHED)
    if parent is None or not sys.platform.startswith("linux"):
        return
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):  # it died before we asked
        raise Interrupted(signal.SIGTERM, "because the launcher is gone; the same command goes on")


def leave(code: int) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


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
    return isinstance(error, dist.DistError) or any(word in str(error) for word in LOST)


def first_line(error: BaseException) -> str:
    """Without the place in gloo's source before it, and its guesses after it."""
    words = str(error).strip().splitlines()[0].partition(". This is typically")[0]
    return words.rpartition("] ")[2][:200]


def leave_word(words: str, final: bool, code: int = 1, bereft: bool = False) -> None:
    """For the launcher: what happened, and whether to try again would be in vain.

    ``bereft`` is a process that ends because another one did.
    """
    if LAUNCHED in os.environ:  # whose signal is not to come in between
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    path = os.environ.get(ERROR_FILE)
    if path is not None:
        message = {"message": words, "extraInfo": {"timestamp": str(int(time.time()))}}
        told = dict(message=message, final=final, code=code, bereft=bereft)
        with contextlib.suppress(OSError):
            Path(path).write_text(json.dumps(told))
