"""Writing a picture cache: the lock, the decoding, the room on the disk, the rename at the end.

`wessl.data.cache` tells what is in the folder and reads it.
"""

import errno
import json
import os
import shutil
import tempfile
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from wessl.data.bad_pictures import BadPicture, Skipped, check_bad
from wessl.data.decode import Pixels
from wessl.data.names import Names
from wessl.data.source import Source
from wessl.data.workers import decode_many
from wessl.errors import Failure, UserError

Progress = Callable[[int, int], None]
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def sole_builder(home: Path) -> Iterator[None]:
    """Hold a lock that dies with its process, and clear away what a killed builder left."""
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"the cache {home.parent} cannot be made ({error}): set WESSL_CACHE"
        ) from error
    try:
        import fcntl
    except ImportError:  # Windows: two processes may both decode, and the last rename wins
        yield
        return
    path = home.with_name(home.name + ".lock")
    while True:
        try:
            lock = os.open(path, os.O_CREAT | os.O_RDWR)
        except OSError as error:
            raise UserError(
                f"cannot write in the cache {home.parent} ({error}): set WESSL_CACHE"
            ) from error
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists() and os.path.samestat(os.fstat(lock), os.stat(path)):
            break
        os.close(lock)  # its last holder removed the file: lock the new one
    try:
        for left in home.parent.glob(home.name + ".part-*"):
            shutil.rmtree(left)
        yield
    finally:
        path.unlink()
        os.close(lock)


def write_cache(
    source: Source,
    home: Path,
    wanted: dict[str, Any],
    workers: int | None,
    max_bad: int | float,
    progress: Progress | None,
) -> None:
    """Decode `source` into the folder `home`, replacing it; `wanted` goes into its header."""
    part = Path(tempfile.mkdtemp(dir=home.parent, prefix=home.name + ".part-"))
    writing = _Writing(part, len(source))
    try:
        with open(part / "pixels.bin", "wb") as file:
            decoded = decode_many(source, range(len(source)), wanted["short_side"], workers)
            for done, (index, picture) in enumerate(decoded, 1):
                if isinstance(picture, BadPicture):
                    writing.skipped.append((source.name(index), str(picture)))
                    check_bad(writing.skipped, len(source), max_bad, done)
                else:
                    writing.add(file, index, picture)
                if done % 1000 == 0:
                    writing.check_room()
                if progress is not None:
                    progress(done, len(source))
            file.write(bytes(max(writing.widths) * source.channels))  # see PictureCache._padded
            file.flush()
            os.fsync(file.fileno())
        writing.finish(source, wanted)
        if home.exists():
            os.replace(home, part / "old")
        os.replace(part, home)
        shutil.rmtree(home / "old", ignore_errors=True)
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise writing.no_room() from error
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)


@dataclass
class _Writing:
    part: Path
    total: int
    written: int = 0
    heights: "array[int]" = field(default_factory=lambda: array("i"))
    widths: "array[int]" = field(default_factory=lambda: array("i"))
    indices: "array[int]" = field(default_factory=lambda: array("q"))
    skipped: Skipped = field(default_factory=list)

    def add(self, file: BinaryIO, index: int, picture: Pixels) -> None:
        file.write(np.ascontiguousarray(picture).data)
        self.written += picture.nbytes
        self.heights.append(picture.shape[0])
        self.widths.append(picture.shape[1])
        self.indices.append(index)

    def needed(self) -> int:
        seen = len(self.indices) + len(self.skipped)
        return self.written * self.total // max(1, seen)

    def check_room(self) -> None:
        # Better after a thousand pictures than after hours.
        if self.needed() - self.written > shutil.disk_usage(self.part).free:
            raise self.no_room()

    def no_room(self) -> Failure:
        free = shutil.disk_usage(self.part.parent).free
        return Failure(
            f"no room for the picture cache in {self.part.parent}: it needs about "
            f"{self.needed():,} bytes, {free:,} are free; give --cache (or WESSL_CACHE) a larger "
            "disk, choose a smaller --short-side, or train without a cache: --decode stream"
        )

    def finish(self, source: Source, wanted: dict[str, Any]) -> None:
        kept = np.frombuffer(self.indices, np.int64)
        names = Names.collect(os.fsencode(source.name(int(i))) for i in kept)
        arrays: dict[str, NDArray[Any]] = {
            "heights": np.frombuffer(self.heights, np.int32),
            "widths": np.frombuffer(self.widths, np.int32),
            "source_index": kept,
            "names": names.blob,
            "name_bounds": names.bounds,
        }
        if source.labels is not None:
            arrays["labels"] = source.labels[kept]
        for name, values in arrays.items():
            np.save(self.part / f"{name}.npy", values)
        header = wanted | {
            "classes": source.classes,
            "blocks": None if source.blocks is None else source.blocks.tolist(),
            "labelled": source.labels is not None,
            "skipped": self.skipped,
            "nbytes": (self.part / "pixels.bin").stat().st_size,
        }
        with open(self.part / "header.json", "w") as file:
            json.dump(header, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
