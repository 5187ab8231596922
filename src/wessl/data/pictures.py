"""The pictures of a source, decoded once into a cache or again whenever they are wanted.

Everything here counts pictures as the source does, readable or not, so that both ways agree.
"""

import hashlib
import shutil
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from wessl.data.cache.build import build_cache, find_cache
from wessl.data.cache.cache import PictureCache, mean_std
from wessl.data.cache.writer import Progress
from wessl.data.decoding.bad_pictures import BadPicture
from wessl.data.decoding.decode import Pixels
from wessl.data.gpu_jpeg.many import decode_with
from wessl.data.gpu_jpeg.nvjpeg import BatchDecoder
from wessl.data.sources.source import Source, cache_directory
from wessl.errors import UserError

Decode = Literal["once", "stream"]
SAMPLE = 64
"""Pictures looked at to guess the size of all, and to know them again."""
FEW = 512
"""Not worth the start of other processes."""


@dataclass(frozen=True)
class Pictures:
    """A source, and its cache if it has one.

    >>> from wessl.data.sources.open import open_source
    >>> digits = Pictures(open_source("builtin://digits/test"), short_side=None)
    >>> [(number, picture.shape) for number, picture in digits.decoded([3, 499])]
    [(3, (8, 8, 1)), (499, (8, 8, 1))]
    """

    source: Source
    short_side: int | None
    cache: PictureCache | None = None
    workers: int | None = None
    jpeg: BatchDecoder | None = None

    def __len__(self) -> int:
        return len(self.source)

    def decoded(
        self, numbers: Sequence[int]
    ) -> Generator[tuple[int, Pixels | BadPicture], None, None]:
        """Pictures by their numbers in the source; one that cannot be read comes as its reason."""
        if self.cache is None:
            workers = 0 if len(numbers) < FEW else self.workers
            yield from decode_with(self.jpeg, self.source, numbers, self.short_side, workers)
            return
        found = self.cache.rows(torch.tensor(numbers, dtype=torch.int64))
        for number, row in zip(numbers, found.tolist(), strict=True):
            if int(self.cache.source_index[row]) == number:
                yield number, self.cache.picture(row).numpy()
            else:
                yield number, BadPicture("it could not be decoded")

    def mean_std(self, most: int = 1000) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of each channel in 0..1, over evenly spaced pictures."""
        pairs = self.decoded(spaced(len(self), most))
        readable = (picture for _, picture in pairs if not isinstance(picture, BadPicture))
        return mean_std(torch.tensor(picture) for picture in readable)

    def sample_digest(self) -> str:
        """Of the number of pictures and of some of them, wherever they lie.

        As Pillow decodes them: another GPU may round otherwise, and they are the same pictures.
        """
        if self.jpeg is not None:
            return Pictures(self.source, self.short_side).sample_digest()
        digest = hashlib.sha256(str(len(self)).encode())
        for _, picture in self.decoded(spaced(len(self), SAMPLE)):
            if isinstance(picture, BadPicture):
                digest.update(b"unreadable")
            else:
                digest.update(str(picture.shape).encode() + picture.tobytes())
        return digest.hexdigest()


def spaced(n: int, most: int) -> list[int]:
    """Up to ``most`` of ``n`` numbers, from the first to the last.

    >>> spaced(100, 3)
    [0, 49, 99]
    """
    return torch.linspace(0, n - 1, min(most, n)).long().tolist()


def open_pictures(
    source: Source,
    short_side: int | None,
    decode: Decode,
    directory: str | Path | None = None,
    workers: int | None = None,
    max_bad: int | float = 0.5,
    progress: Progress | None = None,
    jpeg: BatchDecoder | None = None,
) -> Pictures:
    """Decodes them now if they are to be decoded once; the arguments are `build_cache`'s."""
    cache = None
    if decode == "once":
        cache = build_cache(source, short_side, directory, workers, max_bad, progress, jpeg)
    return Pictures(source, short_side, cache, workers, jpeg)


def choose_decode(
    source: Source,
    short_side: int | None,
    directory: str | Path | None = None,
    jpeg: BatchDecoder | None = None,
) -> tuple[Decode, str]:
    """Once, if a cache is there or there is room for it; and why, in words."""
    name = None if jpeg is None else jpeg.name
    if find_cache(source, short_side, directory, name) is not None:
        return "once", "as they already are, in the cache"
    place = cache_directory(directory)
    there = next(folder for folder in (place, *place.absolute().parents) if folder.exists())
    needed, free = cache_bytes(source, short_side), shutil.disk_usage(there).free
    sizes = f"about {gigabytes(needed)} of the {gigabytes(free)} free in {place}"
    if needed <= 0.9 * free:
        return "once", f"a cache takes {sizes}"
    return "stream", (
        f"a cache would take {sizes}; slower than decoding once: give --cache a larger disk if "
        "data wait is high"
    )


def cache_bytes(source: Source, short_side: int | None) -> int:
    """What a cache would take, judged by a few pictures."""
    looked_at = spaced(len(source), SAMPLE)
    pairs = Pictures(source, short_side).decoded(looked_at)
    sizes = [picture.nbytes for _, picture in pairs if not isinstance(picture, BadPicture)]
    if not sizes:
        raise none_readable(source, looked_at)
    return sum(sizes) * len(source) // len(sizes)


def none_readable(source: Source, looked_at: Sequence[int]) -> UserError:
    """With one of them, and why it is not."""
    first = looked_at[0]
    (_, found), *_ = Pictures(source, None).decoded([first])
    why = f"; {source.name(first)}: {found}" if isinstance(found, BadPicture) else ""
    words = f"none of the {len(looked_at)} pictures looked at in {source.location} can be read"
    return UserError(f"{words}{why}. Give pictures, or repair these")


def gigabytes(size: float) -> str:
    """
    >>> gigabytes(2_540_000_000), gigabytes(3_000_000), gigabytes(700)
    ('2.5 GB', '3.0 MB', '0.7 kB')
    """
    for unit, length in (("GB", 1e9), ("MB", 1e6)):
        if size >= length / 2:
            return f"{size / length:.1f} {unit}"
    return f"{size / 1e3:.1f} kB"
