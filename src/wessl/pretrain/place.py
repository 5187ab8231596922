"""Where a process stands among those that were started together, and how they find each other."""

import os
import re
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from torch.distributed import DistStoreError
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from wessl.errors import UserError

PATIENCE = timedelta(minutes=5)
"""For the others to start, however little they may take for a step: some machines are slow."""


@dataclass(frozen=True)
class Place:
    """One of ``world`` processes, the ``local_rank``-th on its machine; they meet at an address."""

    rank: int
    world: int
    local_rank: int
    address: str = "env://"


def find_place(environment: Mapping[str, str] = os.environ) -> Place | None:
    """As torchrun, or SLURM's srun, tells its processes; None for one that stands alone."""
    try:
        if "RANK" in environment and "WORLD_SIZE" in environment:
            rank, world = int(environment["RANK"]), int(environment["WORLD_SIZE"])
            place = Place(rank, world, int(environment.get("LOCAL_RANK", 0)))
        elif "SLURM_STEP_NUM_TASKS" in environment:  # srun sets it, a batch script has none
            place = Place(
                int(environment["SLURM_PROCID"]),
                int(environment["SLURM_STEP_NUM_TASKS"]),
                int(environment["SLURM_LOCALID"]),
                f"tcp://{meeting_point(environment)}",
            )
        else:
            return None
    except (KeyError, ValueError) as error:
        raise UserError(
            f"the launcher's environment is not whole ({error}); start with torchrun, srun or "
            "wessl pretrain --devices N"
        ) from None
    return place if place.world > 1 else None


def meeting_point(environment: Mapping[str, str]) -> str:
    """``host:port`` of the first of srun's processes; ``MASTER_ADDR`` and ``_PORT`` come first.

    >>> meeting_point({"SLURM_STEP_NODELIST": "gpu[07-09,12],login", "SLURM_JOB_ID": "4321"})
    'gpu07:24321'
    """
    nodes = environment["SLURM_STEP_NODELIST"]
    found = re.match(r"([^,\[]+)(?:\[(\d+))?", nodes)
    if found is None:
        raise ValueError(f"SLURM_STEP_NODELIST {nodes!r}")
    host = environment.get("MASTER_ADDR", found[1] + (found[2] or ""))
    port = 20000 + int(environment["SLURM_JOB_ID"]) % 20000
    return f"{host}:{environment.get('MASTER_PORT', port)}"


def meet(place: Place, limit: timedelta) -> Store:
    """A store that the processes of this start share with each other alone.

    torch's launcher keeps its store when it starts processes again, with the addresses of those
    that died still in it, so every start has a name of its own there.
    """
    limit = max(limit, PATIENCE)
    meeting = rendezvous(place.address, place.rank, place.world, timeout=limit)
    store: Store = next(meeting)[0]
    store.set_timeout(limit)
    if place.address != "env://":
        return store
    name = give_name(store, place.world, limit) if place.rank == 0 else ask_name(store, place.rank)
    return PrefixStore(name, store)


def give_name(store: Store, world: int, limit: timedelta) -> str:
    """The first process names the start, and tells whoever asks until all have heard.

    A question may be that of a process which is dead; the answer then reaches nobody.
    """
    name, missing = uuid.uuid4().hex, set(range(1, world))
    deadline = time.monotonic() + limit.total_seconds()
    while missing:
        for rank in sorted(missing):
            if store.check([f"heard/{name}/{rank}"]):
                missing.discard(rank)
            elif store.check([f"ask/{rank}"]):
                store.set(f"answer/{store.get(f'ask/{rank}').decode()}", name)
        if time.monotonic() > deadline:
            raise DistStoreError(f"Timed out waiting for processes {sorted(missing)}")
        time.sleep(0.02 * bool(missing))
    return name


def ask_name(store: Store, rank: int) -> str:
    question = uuid.uuid4().hex
    store.set(f"ask/{rank}", question)
    name = store.get(f"answer/{question}").decode()
    store.set(f"heard/{name}/{rank}", "")
    return name
