"""The processes that train one model together: who they are, and how they talk.

Alone, nothing here communicates. In a team every process does the same steps on its own part of
each batch; the first one alone writes and speaks.
"""

import contextlib
import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from wessl.ensemble.collective import Group
from wessl.errors import UserError
from wessl.pretrain.place import Place, meet
from wessl.pretrain.signals import SAVE

T = TypeVar("T")
PIECE = 2**28
"""Bytes sent at once."""


@dataclass
class Team:
    """The processes of a run; with ``group=None``, this one alone."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    group: Group | None = None
    control: Group | None = None
    """For what may take one process hours while the others wait, such as decoding."""
    _heard: "tuple[dist.Work, Tensor] | None" = field(default=None, repr=False)

    @property
    def first(self) -> bool:
        return self.rank == 0

    @property
    def part(self) -> tuple[int, int]:
        return self.rank, self.world

    def mean(self, x: Tensor) -> Tensor:
        """Over processes, which hold equally many pictures: the mean over the whole batch."""
        return x if self.group is None else self._reduced(x, dist.ReduceOp.SUM) / self.world

    def any(self, x: Tensor) -> Tensor:
        return x if self.group is None else self._reduced(x.byte(), dist.ReduceOp.MAX).bool()

    def _reduced(self, x: Tensor, how: Any) -> Tensor:
        total = x.clone()
        dist.all_reduce(total, how, self.group)
        return total

    def gather_pictures(self, x_vn: Tensor, views: int) -> Tensor:
        """``(views n, ...)`` of each process to that of the whole batch, view-major too."""
        if self.group is None:
            return x_vn
        parts = [torch.empty_like(x_vn) for _ in range(self.world)]
        dist.all_gather(parts, x_vn.contiguous(), self.group)
        return torch.cat([part.unflatten(0, (views, -1)) for part in parts], 1).flatten(0, 1)

    def gather(self, thing: T) -> list[T]:
        """Each process's own, in their order."""
        if self.group is None:
            return [thing]
        found: list[Any] = [None] * self.world
        dist.all_gather_object(found, thing, self.control)
        return found

    def first_does(self, work: Callable[[], T]) -> T:
        """The first process works, all have the result; what stops it stops all, in its words."""
        if self.group is None:
            return work()
        answer: list[Any] = [None, None]
        if self.first:
            try:
                answer[0] = work()
            except UserError as error:
                answer[1] = error
        dist.broadcast_object_list(answer, 0, self.control)
        if answer[1] is not None:
            raise answer[1] if self.first else Elsewhere(answer[1])
        return answer[0]

    def together(self, work: Callable[[], T]) -> T:
        """All work; what stops one stops all, in the words of the first that was stopped."""
        if self.group is None:
            return work()
        done, error = None, None
        try:
            done = work()
        except UserError as stopped:
            error = stopped
        for rank, stopped_by in enumerate(self.gather(error)):
            if stopped_by is not None:
                raise stopped_by if self.rank == rank else Elsewhere(stopped_by)
        return done  # type: ignore[return-value]

    def in_turn(self, work: Callable[[], T]) -> T:
        """On each machine one process works before the others, which find what it made."""
        if self.group is None:
            return work()
        made = self.together(lambda: work() if self.local_rank == 0 else None)
        found = self.together(lambda: work() if self.local_rank != 0 else None)
        return made if self.local_rank == 0 else found  # type: ignore[return-value]

    def share(self, state: Any) -> Any:
        """The first process's state, tensors and all, on the CPU of every process."""
        if self.group is None:
            return state
        packed = io.BytesIO()
        if self.first:
            torch.save(state, packed)
        size = torch.tensor(packed.getbuffer().nbytes)
        dist.broadcast(size, 0, self.control)
        buffer = packed.getbuffer() if self.first else bytearray(int(size))
        for piece in torch.frombuffer(buffer, dtype=torch.uint8).split(PIECE):
            dist.broadcast(piece, 0, self.control)
        return state if self.first else torch.load(io.BytesIO(buffer), weights_only=True)

    def agree(self, asked: int, due: bool) -> int:
        """The signal to stop by, ``SAVE``, or 0, alike in all processes.

        By what anybody was ``asked``, or by the first one's clock if a save is ``due``. Nobody
        waits: it is sent on its way now, and known one step later.
        """
        if self.group is None:
            return max(asked, SAVE * due)
        heard = self._settled()
        if heard and asked <= SAVE:
            asked = 0  # one signal reaches processes in neighbouring steps: this save does for both
        said = torch.tensor(max(asked, SAVE * (due and self.first)))
        work = dist.all_reduce(said, dist.ReduceOp.MAX, self.group, async_op=True)
        self._heard = work, said
        return heard

    def _settled(self) -> int:
        if self._heard is None:
            return 0
        work, said = self._heard
        work.wait()
        self._heard = None
        return int(said)


ALONE = Team()


class Elsewhere(UserError):
    """What another process has stopped for, and says."""

    def __init__(self, cause: UserError):
        super().__init__(str(cause))
        self.exit_code = cause.exit_code


@contextlib.contextmanager
def join(place: Place | None, device: torch.device, timeout: float) -> Iterator[Team]:
    """A team from here to the end of the block."""
    if place is None:
        yield ALONE
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    # Tensors on the CPU go over gloo in any case: what processes agree on never waits for a GPU.
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    limit = timedelta(seconds=timeout)
    store = meet(place, limit)
    dist.init_process_group(
        backend, store=store, rank=place.rank, world_size=place.world, timeout=limit
    )
    try:
        patient = dist.new_group(timeout=timedelta(days=7), backend="gloo")
        team = Team(place.rank, place.world, place.local_rank, dist.group.WORLD, patient)
        yield team
        team._settled()
    finally:
        dist.destroy_process_group()
