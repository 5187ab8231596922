"""Where each picture lies in tar shards: found by one pass over their headers, and kept.

`wessl pack` leaves the index beside its shards as `index.npz`, so that nobody has to read them
through; that of others' shards is kept in the cache directory until one of them changes.
"""

import io
import json
import sys
import warnings
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wessl.data.decoding.decode import PixelFormat
from wessl.data.sole_builder import sole_builder
from wessl.data.sources.names import Names
from wessl.data.sources.shards.files import ShardFiles
from wessl.data.sources.shards.labels import join_labels
from wessl.data.sources.shards.scan import Scanned, scan_tar
from wessl.data.sources.source import digest
from wessl.errors import UserError

VERSION = 2
LARGE = 2e9
"""Bytes of shards from which on a user waits long enough to be told why."""
INDEX = "index.npz"


@dataclass
class ShardIndex:
    """Pictures in the order of their shards: `counts` (s,), `starts` and `sizes` (n,) in bytes.

    By its `marks` (n,) each picture is known again when it is read.
    """

    counts: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]
    marks: NDArray[np.uint32]
    names: Names
    labels: NDArray[np.int64] | None = None
    classes: list[str] | None = None
    note: str | None = None
    pixel_format: PixelFormat | None = None
    path: str | None = None
    """The file it comes from, or was kept in."""

    def __len__(self) -> int:
        return len(self.starts)

    def take_shards(self, shards: Sequence[int]) -> "ShardIndex":
        first = np.cumsum(self.counts) - self.counts
        rows = np.concatenate([np.arange(first[s], first[s] + self.counts[s]) for s in shards])
        labels = None if self.labels is None else self.labels[rows]
        return ShardIndex(
            self.counts[list(shards)], self.starts[rows], self.sizes[rows], self.marks[rows],
            self.names.take(rows), labels, self.classes, self.note, self.pixel_format, self.path,
        )  # fmt: skip


def index_of(files: ShardFiles, stats: list[tuple[int, str]], keep: Path) -> ShardIndex:
    """The index beside the shards, else the one kept in `keep`, else a new one, kept there."""
    if (index := _beside(files, stats)) is not None:
        return index
    mark = digest(json.dumps([VERSION, files.shards, stats]).encode())
    kept = keep / f"shards-{digest(json.dumps(files.shards).encode())}.npz"
    if (index := _kept(kept, mark)) is not None:
        return index
    with ExitStack() as held:
        try:  # of several processes that train together one looks, and the others wait for it
            held.enter_context(sole_builder(kept))
        except UserError as error:
            warnings.warn(f"the shards' index will not be kept: {error}", stacklevel=2)
            return _new(files, stats)
        if (index := _kept(kept, mark)) is None:
            index = _new(files, stats)
            save_index(kept, index, {"mark": mark})
            index.path = str(kept)
    return index


def _kept(path: Path, mark: str) -> ShardIndex | None:
    # None is there, it is broken, or of another version: look ourselves.
    with suppress(OSError, ValueError, KeyError, zipfile.BadZipFile):
        index, header = load_index(path.read_bytes())
        if header["mark"] == mark:
            index.path = str(path)
            return index
    return None


def _new(files: ShardFiles, stats: list[tuple[int, str]]) -> ShardIndex:
    total = sum(size for size, _ in stats)
    if total > LARGE:
        words = f"reading {len(stats)} shards through, {total / 1e9:.0f} GB, to find the pictures"
        print(f"{words} (once: the index is kept)", file=sys.stderr, flush=True)
    with ThreadPoolExecutor(8 if files.remote else 1) as threads:
        parts = list(threads.map(lambda i: _scan(files, i, stats[i][0]), range(len(stats))))
    return merge(parts, files)


def _scan(files: ShardFiles, shard: int, size: int) -> Scanned:
    with files.open(shard) as file:
        return scan_tar(file, size, files.shards[shard])


def merge(parts: list[Scanned], files: ShardFiles) -> ShardIndex:
    index = ShardIndex(
        np.array([len(part.starts) for part in parts], np.int64),
        np.concatenate([np.frombuffer(part.starts, np.int64) for part in parts]),
        np.concatenate([np.frombuffer(part.sizes, np.int64) for part in parts]),
        np.concatenate([np.frombuffer(part.marks, np.uint32) for part in parts]),
        Names.join([part.names for part in parts if part.names is not None]),
    )
    index.labels, index.classes, why = join_labels(parts, files)
    cut = [files.shards[i] for i, part in enumerate(parts) if part.cut]
    index.note = "; ".join(note for note in (why, _broken(cut)) if note) or None
    return index


def _broken(cut: list[str]) -> str | None:
    if not cut:
        return None
    some = ", ".join(cut[:5]) + f" and {len(cut) - 5:,} more" * (len(cut) > 5)
    return f"damaged or cut off in the middle, only what is whole before that is used: {some}"


def _beside(files: ShardFiles, stats: list[tuple[int, str]]) -> ShardIndex | None:
    """The index that `wessl pack` left, if it tells of all these shards as they are."""
    if len({shard.rpartition("/")[0] for shard in files.shards}) > 1:
        return None
    try:
        index, header = load_index(files.read_beside(0, INDEX))
        number = {name: (i, size) for i, (name, size) in enumerate(header["shards"])}
        told = [number[shard.rpartition("/")[2]] for shard in files.shards]
    except Exception:  # none there, of another version, or of other shards: look ourselves
        return None
    if [size for _, size in told] != [size for size, _ in stats]:
        return None
    index.path = f"{files.shards[0].rpartition('/')[0]}/{INDEX}"
    chosen = [i for i, _ in told]
    return index if chosen == list(range(len(number))) else index.take_shards(chosen)


def save_index(path: Path, index: ShardIndex, header: dict[str, Any]) -> None:
    about = header | dict(
        version=VERSION, classes=index.classes, note=index.note,
        pixel_format=None if index.pixel_format is None else vars(index.pixel_format),
    )  # fmt: skip
    arrays: dict[str, NDArray[Any]] = dict(
        counts=index.counts, starts=index.starts, sizes=index.sizes, marks=index.marks,
        blob=index.names.blob, bounds=index.names.bounds,
        header=np.frombuffer(json.dumps(about).encode(), np.uint8),
    )  # fmt: skip
    if index.labels is not None:
        arrays["labels"] = index.labels

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)

    from wessl.files import write_whole  # which imports torch: not for worker processes

    write_whole(path, write)


def load_index(content: bytes) -> tuple[ShardIndex, dict[str, Any]]:
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        held = {name: arrays[name] for name in arrays.files}
    header = json.loads(held["header"].tobytes())
    if header["version"] != VERSION:
        raise ValueError(f"an index of version {header['version']}")
    form = header["pixel_format"]
    index = ShardIndex(
        held["counts"], held["starts"], held["sizes"], held["marks"],
        Names(held["blob"], held["bounds"]), held.get("labels"), header["classes"], header["note"],
        None if form is None else PixelFormat(**form),
    )  # fmt: skip
    return index, header
