"""Pictures in tar shards, each read by its place in them, so that any can be had at any time.

Nothing is streamed in sequence: order, resume and the split over processes are those of every
other source. Neighbours that are wanted together come with one read (`prefetch`).
"""

import os
import threading
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wessl.data.decoding.bad_pictures import ShardLost
from wessl.data.decoding.decode import PixelFormat, sniff
from wessl.data.sources.shards.files import ShardFiles
from wessl.data.sources.shards.index import ShardIndex, index_of
from wessl.data.sources.shards.names import list_shards
from wessl.data.sources.shards.scan import HEADER, mark
from wessl.data.sources.source import EncodedSource, digest
from wessl.errors import UserError

GAP = 64 << 10
"""Bytes between two pictures that are read along rather than asked for a second time."""
HELD = 256
"""Pictures fetched ahead at most; what nobody came for makes room."""
RUN = 8
"""Neighbours that are looked at together."""


class ShardSource(EncodedSource):
    """Pictures of tar shards in the WebDataset layout."""

    def __init__(
        self,
        location: str,
        files: ShardFiles,
        stats: list[tuple[int, str]],
        index: ShardIndex,
        channels: int | None = None,
    ):
        self.location, self.files, self.stats, self.index = location, files, stats, index
        self.labels, self.classes, self.note = index.labels, index.classes, index.note
        self.blocks = index.counts
        self.first = np.cumsum(index.counts) - index.counts
        self.parallel = not files.in_this_process
        self.ahead = 4 if files.remote else 2
        self._channels = channels
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._fetched: dict[int, bytes | ShardLost] = {}

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {key: state[key] for key in state if key not in ("_lock", "_fetched")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    def __len__(self) -> int:
        return len(self.index)

    def name(self, index: int) -> str:
        return self.index.names[index]

    def shard_of(self, index: int) -> int:
        return int(np.searchsorted(self.first, index, side="right")) - 1

    def file(self, index: int) -> bytes:
        with self._lock:
            held = self._fetched.pop(index, None)
        if held is None:
            start, size = int(self.index.starts[index]), int(self.index.sizes[index])
            found = self.files.read(self.shard_of(index), start - HEADER, start + size)
            held = self._known_again(index, memoryview(found))
        if isinstance(held, ShardLost):
            raise ShardLost(str(held))
        return held

    def _known_again(self, index: int, found: memoryview) -> bytes | ShardLost:
        """The picture out of its header and itself, if they are those that were indexed."""
        header, picture = found[:HEADER], found[HEADER:]
        if mark(header, picture) == self.index.marks[index]:
            return bytes(picture)
        shard, path = self.files.shards[self.shard_of(index)], self.index.path
        remedy = f"remove {path}" if path else "start again"
        return ShardLost(f"{shard} changed since it was indexed; {remedy} to have it read anew")

    def prefetch(self, indices: Sequence[int]) -> None:
        for near in self._near(sorted(set(indices))):
            shard = self.shard_of(near[0])
            starts = [int(self.index.starts[i]) - HEADER for i in near]
            stops = [int(self.index.starts[i] + self.index.sizes[i]) for i in near]
            try:
                content = memoryview(self.files.read(shard, starts[0], stops[-1]))
            except ShardLost as lost:
                found: list[bytes | ShardLost] = [lost] * len(near)
            else:
                found = [
                    self._known_again(i, content[start - starts[0] : stop - starts[0]])
                    for i, start, stop in zip(near, starts, stops, strict=True)
                ]
            with self._lock:
                self._fetched.update(zip(near, found, strict=True))
                while len(self._fetched) > HELD:
                    del self._fetched[next(iter(self._fetched))]

    def _near(self, ordered: list[int]) -> list[list[int]]:
        """Cut where shards end, and where more than `GAP` bytes lie between two pictures."""
        groups: list[list[int]] = []
        for index in ordered:
            if groups and self.shard_of(index) == self.shard_of(last := groups[-1][-1]):
                end = int(self.index.starts[last] + self.index.sizes[last])
                if int(self.index.starts[index]) - end <= GAP:
                    groups[-1].append(index)
                    continue
            groups.append([index])
        return groups

    def stand_in(self, index: int, lost: bool) -> int:
        if not lost:
            return super().stand_in(index, lost)
        # The same place in the next shard: the first picture there, over and over, would fill
        # batches with its copies.
        shard = self.shard_of(index)
        place = index - int(self.first[shard])
        full = [s % len(self.first) for s in range(shard + 1, shard + 1 + len(self.first))]
        other = next(s for s in full if self.index.counts[s])
        return int(self.first[other]) + place % int(self.index.counts[other])

    @cached_property
    def pixel_format(self) -> PixelFormat:
        known = self.index.pixel_format
        if known is not None:
            return PixelFormat(self._channels or known.channels, known.white)
        return sniff(self._files(self.sample(self.sampled)), self._channels)

    def sample(self, most: int) -> list[int]:
        """Runs of neighbours, each of which comes with one read."""
        most = min(most, HELD)
        firsts = np.linspace(0, len(self) - 1, min(len(self), max(1, most // RUN))).astype(int)
        runs = [range(first, min(first + RUN, len(self))) for first in firsts]
        runs = runs if len(self) > most else [range(len(self))]
        sample = sorted({index for run in runs for index in run})
        self.prefetch(sample)
        return sample

    @cached_property
    def fingerprint(self) -> str:
        return self._fingerprint(self.index)

    def _fingerprint(self, index: ShardIndex) -> str:
        names = [os.path.basename(shard) for shard in self.files.shards]
        labels = np.zeros(0) if index.labels is None else index.labels
        about = str((names, self.stats, index.classes)).encode()
        return digest(about, index.starts, index.sizes, index.marks, index.names.blob, labels)


def open_shards(text: str, channels: int | None, keep: Path) -> ShardSource:
    """Shards by path, glob, brace range or URL; an index that had to be made is kept in `keep`."""
    shards = list_shards(text)
    files = ShardFiles(shards)
    stats = files.stats()
    index = index_of(files, stats, keep)
    if not len(index):
        raise UserError(f"{text}: {len(shards)} shards without a picture in them")
    location = text if files.remote else os.path.abspath(os.path.expanduser(text))
    source = ShardSource(location, files, stats, index, channels)
    if index.labels is not None and _sorted_by_class(index.labels):
        said = "neighbours mostly share their label, so batches will not be random: `wessl pack`"
        source.note = "; ".join(note for note in (index.note, f"{said} shuffles them") if note)
    return source


def _sorted_by_class(labels: NDArray[np.int64]) -> bool:
    """Whether neighbours agree far more often than they would in random order."""
    share = np.unique(labels, return_counts=True)[1] / len(labels)
    agree = float((labels[1:] == labels[:-1]).mean()) if len(labels) > 1 else 0.0
    return len(share) > 1 and len(labels) >= 64 and agree > 0.5 + 0.5 * float((share**2).sum())
