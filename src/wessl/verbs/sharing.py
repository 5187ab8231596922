"""Processes that a launcher started together share the pictures of one command out."""

import contextlib
from collections.abc import Iterator

import torch
import torch.distributed as dist

from wessl import plan
from wessl.config import Options
from wessl.pretrain.parallel import ALONE, Team
from wessl.pretrain.place import find_place
from wessl.verbs.launching import launched


@contextlib.contextmanager
def sharing(device: str) -> Iterator[tuple[Team, torch.device]]:
    """This process among those of ``torchrun`` or ``srun``, and its own device.

    Where processes are at work together already, as at the end of their training, this one is
    alone: the others do not take part.
    """
    if dist.is_available() and dist.is_initialized():
        yield ALONE, plan.find_device(device)
        return
    with launched.joined(Options(device=device)) as joined:
        yield joined


def is_first() -> bool:
    """Whether this process is the one to speak."""
    place = find_place()
    return place is None or place.rank == 0
