"""Batches in a random order that is a pure function of seed and epoch, from wherever they fit best.

- `device`: the decoded pictures lie in device memory; a batch is one gather.
- `host`: they lie in the memory-mapped cache; a thread gathers, pins and copies ahead.
- `stream`: nothing is decoded beforehand; worker processes decode ahead.

All three give the same pictures in the same order, counted as the source counts them: for one that
cannot be decoded the next one stands in.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from typing import Literal

import torch
from torch import Tensor

from wessl.data.batch import Batch
from wessl.data.cache.cache import PictureCache
from wessl.data.decoding.bad_pictures import BadPicture, ShardLost, Skipped, check_bad
from wessl.data.decoding.decode import Pixels
from wessl.data.gpu_jpeg.many import decode_with
from wessl.data.gpu_jpeg.nvjpeg import BatchDecoder
from wessl.data.loading.ahead import Numbered, ahead_of
from wessl.data.loading.memory import available_memory
from wessl.data.loading.order import epoch_order
from wessl.data.sources.source import Source
from wessl.data.workers.many import Decoded
from wessl.errors import Lost, UserError

__all__ = ["Loader", "Residency", "check_batch", "check_parts", "epoch_order"]

LOST_IN_A_ROW = 4
"""So many shards lost one after the other are a server lost."""
Residency = Literal["auto", "device", "host", "stream"]


def check_batch(batch_size: int, pictures: int) -> None:
    if not 1 <= batch_size <= pictures:
        raise UserError(
            f"a batch of {batch_size} cannot be drawn from {pictures} pictures; choose "
            f"--optim.batch-size from 1 to {pictures}"
        )


def check_parts(batch_size: int, processes: int) -> None:
    if batch_size % processes:
        raise UserError(
            f"a batch of {batch_size} cannot be split evenly over {processes} processes; choose "
            f"--optim.batch-size and --devices so that the first is a multiple of the second"
        )


class Loader:
    """Endless batches from any step on; an epoch's last incomplete batch is dropped.

    >>> from wessl.data.sources.open import open_source
    >>> loader = Loader(open_source("builtin://digits"), batch_size=256, device="cpu")
    >>> for indices, batch in loader.batches(start_step=1200):
    ...     break  # `batch` is on the device; `indices` stay on the CPU
    >>> batch.pixels.shape
    torch.Size([256, 8, 8, 1])
    >>> seconds_spent_waiting_for_data = loader.wait

    `share` is the part of the free memory that pictures may take on the device. Given a `Source`,
    it streams: `short_side`, `max_bad` and `jpeg` as in `build_cache`, and a picture that cannot
    be decoded is replaced by the next one in the source's order and listed in `skipped`.

    `part` is (this process, number of processes): `batch_size` stays that of all processes
    together, and each step yields only this process's contiguous slice of it.
    """

    def __init__(
        self,
        pictures: PictureCache | Source,
        batch_size: int,
        seed: int = 0,
        device: str | torch.device = "cpu",
        *,
        residency: Residency = "auto",
        share: float = 0.5,
        ahead: int = 3,
        short_side: int | None = 256,
        workers: int | None = None,
        max_bad: int | float = 0.5,
        part: tuple[int, int] = (0, 1),
        jpeg: BatchDecoder | None = None,
    ):
        self.total = (
            pictures.source_pictures if isinstance(pictures, PictureCache) else len(pictures)
        )
        check_batch(batch_size, self.total)
        check_parts(batch_size, part[1])
        self.part, self.part_size = part, batch_size // part[1]
        self.device = torch.device(device)
        self.residency = _residency(pictures, self.device, residency, share)
        if isinstance(pictures, PictureCache) and self.residency == "device":
            pictures = pictures.to(self.device)
        self.pictures, self.batch_size, self.seed, self.ahead = pictures, batch_size, seed, ahead
        self.short_side, self.workers, self.max_bad = short_side, workers, max_bad
        self.jpeg = jpeg
        self.wait = 0.0
        self._bad: dict[int, tuple[str, str]] = {}

    @property
    def steps_per_epoch(self) -> int:
        return self.total // self.batch_size

    @property
    def skipped(self) -> Skipped:
        """Name and reason of every picture that could not be decoded so far."""
        cached = self.pictures.skipped if isinstance(self.pictures, PictureCache) else []
        return [*cached, *self._bad.values()]

    def batches(self, start_step: int = 0) -> Numbered:
        """Endless (indices, batch) from `start_step` on; starting late costs nothing."""
        made = self._made(start_step)
        if self.residency != "device":
            made = ahead_of(made, self.device, self.ahead)
        with closing(made):
            while True:
                began = time.perf_counter()
                indices, batch = next(made)
                self.wait += time.perf_counter() - began
                yield indices, batch

    def _indices(self, start_step: int) -> Iterator[Tensor]:
        epoch, step = divmod(start_step, self.steps_per_epoch)
        while True:
            order = epoch_order(self.seed, epoch, self.total, self.pictures.blocks)
            used = order[step * self.batch_size : self.steps_per_epoch * self.batch_size]
            yield from (
                batch.split(self.part_size)[self.part[0]] for batch in used.split(self.batch_size)
            )
            epoch, step = epoch + 1, 0

    def _made(self, start_step: int) -> Numbered:
        if isinstance(self.pictures, PictureCache):
            for indices in self._indices(start_step):
                rows = self.pictures.rows(indices)
                yield self.pictures.source_index[rows], self.pictures.batch(rows)
            return
        source = self.pictures
        wanted = (int(i) for indices in self._indices(start_step) for i in indices)
        with closing(self._decoded(source, wanted, self.workers)) as decoded:
            while True:
                pairs = [self._good(source, *pair) for pair in islice(decoded, self.part_size)]
                indices = torch.tensor([index for index, _ in pairs])
                yield indices, Batch.collate([picture for _, picture in pairs])

    def _decoded(self, source: Source, wanted: Iterable[int], workers: int | None) -> Decoded:
        return decode_with(self.jpeg, source, wanted, self.short_side, workers)

    def _good(self, source: Source, index: int, picture: Pixels | BadPicture) -> tuple[int, Pixels]:
        lost = 0
        while isinstance(picture, BadPicture):
            if index not in self._bad:
                self._bad[index] = source.name(index), str(picture)
                check_bad(self.skipped, len(source), self.max_bad)
            lost += isinstance(picture, ShardLost)
            if lost == LOST_IN_A_ROW:
                raise Lost(
                    f"{lost} shards in a row do not answer, the last of them: {picture}; when they "
                    "are back, the same command goes on"
                )
            index = source.stand_in(index, isinstance(picture, ShardLost))
            ((_, picture),) = self._decoded(source, [index], 0)
        return index, picture


def _residency(
    pictures: PictureCache | Source, device: torch.device, asked: Residency, share: float
) -> Residency:
    if not isinstance(pictures, PictureCache):
        if asked not in ("auto", "stream"):
            raise UserError(f"pictures that are not cached can only be streamed, not {asked!r}")
        return "stream"
    if asked == "stream":
        raise UserError("streaming takes a source, not a cache")
    if asked != "auto":
        return asked
    there = pictures.device.type == device.type != "cpu"
    # The host maps the cache's file: there it counts whether its pages can all stay in memory.
    return "device" if there or pictures.nbytes <= share * available_memory(device) else "host"
