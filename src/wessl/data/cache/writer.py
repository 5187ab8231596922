"""Writing a picture cache: the decoding, the room on the disk, the rename at the end.

`wessl.data.cache.cache` tells what is in the folder and reads it.
"""

import errno
import json
import os
import shutil
import tempfile
from array import array
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from wessl.data.cache.sync import mark, sync
from wessl.data.decoding.bad_pictures import BadPicture, Skipped, check_bad
from wessl.data.decoding.decode import Pixels
from wessl.data.gpu_jpeg.many import decode_with
from wessl.data.gpu_jpeg.nvjpeg import BatchDecoder
from wessl.data.sources.names import Names
from wessl.data.sources.source import Source
from wessl.errors import Failure

Progress = Callable[[int, int], None]
SMALL = 1 << 26
"""Bytes whose way to the disk nobody notices."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_cache(
    source: Source,
    home: Path,
    wanted: dict[str, Any],
    workers: int | None,
    max_bad: int | float,
    progress: Progress | None,
    jpeg: BatchDecoder | None = None,
) -> None:
    """Decode `source` into the folder `home`, replacing it; `wanted` goes into its header.

    A large one is still marked then (see `cache.sync`): the disk may not have it yet.
    """
    part = Path(tempfile.mkdtemp(dir=home.parent, prefix=home.name + ".part-"))
    writing = _Writing(part, len(source))
    try:
        marked = mark(part)
        every, side = range(len(source)), wanted["short_side"]
        with (
            open(part / "pixels.bin", "wb") as file,
            closing(decode_with(jpeg, source, every, side, workers, keep=False)) as found,
        ):
            for done, (index, picture) in enumerate(found, 1):
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
        writing.finish(source, wanted)
        if not marked or writing.written <= SMALL:
            sync(part)
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
        (self.part / "header.json").write_text(json.dumps(header, indent=1))
