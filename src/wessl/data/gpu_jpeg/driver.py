"""The thread that drives the GPU: a lot of JPEG files in, pictures in the machine's memory out.

A lot is decoded in the decoder's stream while the one before is shrunk in another, and copied home.
The host waits for events of these streams alone, never for a training that runs beside them.
"""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from itertools import groupby
from typing import NamedTuple

import torch
from torch import Tensor

from wessl.data.decoding.bad_pictures import BadPicture
from wessl.data.decoding.decode import Pixels
from wessl.data.gpu_jpeg.file import Jpeg
from wessl.data.gpu_jpeg.nvjpeg import BatchDecoder, sound_jpeg
from wessl.data.gpu_jpeg.shrink import Way, shrink_into
from wessl.data.sources.source import Source
from wessl.data.workers.process import attempt
from wessl.errors import Lost

AT_ONCE = 1 << 24
"""Pixels that are decoded with one call; more would take memory from the training."""
Read = tuple[Jpeg, Way] | Pixels | BadPicture
"""What is left for the GPU, and what is done."""
Place = tuple[int, tuple[int, int]]
"""Where a picture begins in its lot's memory, and its size."""


class Task(NamedTuple):
    """A JPEG of a lot, and its place in the lot's order."""

    row: int
    jpeg: Jpeg
    way: Way

    @property
    def nbytes(self) -> int:
        """Of the picture that comes out."""
        return 3 * self.way.size[0] * self.way.size[1]


class Lot:
    """Pictures in their order: those of the GPU lie in `home` as soon as they are `copied`."""

    def __init__(self, numbers: list[int], found: list[Read]):
        self.numbers = numbers
        self.answers: list[Place | Pixels | BadPicture | None] = [
            None if isinstance(one, tuple) else one for one in found
        ]
        self.home = torch.empty(0, dtype=torch.uint8)
        self.copied: torch.cuda.Event | None = None

    def pictures(self) -> Iterator[tuple[int, Pixels | BadPicture]]:
        """As they lie in `home`, all of which any of them keeps."""
        if self.copied is not None:
            self.copied.synchronize()
        home: Pixels = self.home.numpy()
        for number, answer in zip(self.numbers, self.answers, strict=True):
            assert answer is not None
            if isinstance(answer, tuple):
                start, (height, width) = answer
                flat = home[start : start + 3 * height * width]
                yield number, flat.reshape(height, width, 3)
            else:
                yield number, answer


class Driver:
    """What the GPU is asked to do, always from the same thread."""

    def __init__(self, source: Source, short_side: int | None, jpeg: BatchDecoder):
        self.source, self.short_side, self.jpeg = source, short_side, jpeg
        self.stream = torch.cuda.Stream(jpeg.device) if jpeg.device.type == "cuda" else None
        self.held: deque[tuple[list[Tensor | None], torch.cuda.Event]] = deque()

    def decode(self, numbers: list[int], read: "list[Future[list[Read]]]") -> Lot:
        found = self._read(read)
        lot = Lot(numbers, found)
        tasks = [Task(row, *one) for row, one in enumerate(found) if isinstance(one, tuple)]
        if tasks:
            with nullcontext() if self.stream is None else torch.cuda.stream(self.stream):
                size = sum(task.nbytes for task in tasks)
                out = torch.empty(size, dtype=torch.uint8, device=self.jpeg.device)
                filled = 0
                for part in _parts(tasks):
                    filled = self._shrunk(part, self._decoded(part), out, filled, lot)
                self._send_home(out[:filled], lot)
        return lot

    def _read(self, read: "list[Future[list[Read]]]") -> list[Read]:
        return [one for chunk in read for one in chunk.result()]

    def _decoded(self, part: list[Task]) -> list[Tensor | None]:
        """None where the decoder fails; which one it was, it does not say."""
        # The decoder may overwrite what is given back to torch, whoever still reads it.
        while len(self.held) > 1:
            self.held[0][1].synchronize()
            self.held.popleft()
        try:
            found: list[Tensor | None] = [*self.jpeg([task.jpeg.file for task in part])]
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            found = [self._alone(task.jpeg.file) for task in part]
        sizes = [(3, *task.way.stored) for task in part]
        return [
            None if one is None or one.shape != size else one
            for one, size in zip(found, sizes, strict=True)
        ]

    def _alone(self, file: bytes) -> Tensor | None:
        try:
            return self.jpeg([file])[0]
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            self._refuse_silence()
            return None

    def _refuse_silence(self) -> None:
        """Else a GPU that fails at everything would only be slow."""
        try:
            self.jpeg([sound_jpeg()])
        except RuntimeError as error:
            raise Lost(
                f"the GPU does not decode JPEGs any more ({error}); try the same command again, "
                "or --jpeg cpu in another --out"
            ) from error

    def _shrunk(
        self, part: list[Task], decoded: list[Tensor | None], out: Tensor, filled: int, lot: Lot
    ) -> int:
        """Lays the part's pictures into `out`, which was filled so far; how far it is then."""
        for way, pairs in groupby(zip(part, decoded, strict=True), lambda pair: pair[0].way):
            there: list[Tensor] = []
            for task, picture in pairs:
                if picture is None:
                    index = lot.numbers[task.row]
                    lot.answers[task.row] = attempt(self.source, index, self.short_side)
                else:
                    lot.answers[task.row] = filled + len(there) * task.nbytes, way.size
                    there.append(picture)
            size = 3 * way.size[0] * way.size[1] * len(there)
            if there:
                shrink_into(out[filled : filled + size].view(-1, *way.size, 3), there, way)
            filled += size
        if self.stream is not None:
            self.held.append((decoded, self._event()))
        return filled

    def _send_home(self, out: Tensor, lot: Lot) -> None:
        if self.stream is None:
            lot.home = out
            return
        lot.home = torch.empty(out.shape, dtype=torch.uint8, pin_memory=True)
        lot.home.copy_(out, non_blocking=True)
        lot.copied = self._event()

    def _event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(blocking=True)  # who waits for it leaves the core to others
        event.record(self.stream)
        return event


def _parts(tasks: list[Task]) -> Iterator[list[Task]]:
    """Those of one way together, in parts of at most `AT_ONCE` pixels or one picture."""
    ways: dict[Way, list[Task]] = {}
    for task in tasks:
        ways.setdefault(task.way, []).append(task)
    part: list[Task] = []
    pixels = 0
    for task in (task for same in ways.values() for task in same):
        own = task.jpeg.height * task.jpeg.width
        if part and pixels + own > AT_ONCE:
            yield part
            part, pixels = [], 0
        part.append(task)
        pixels += own
    if part:
        yield part
