"""What pictures come from, whatever it is: a `Source` gives them by number."""

import hashlib
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wessl.data.decoding.bad_pictures import BadPicture, undecodable
from wessl.data.decoding.decode import File, PixelFormat, Pixels, decode, picture_size, sniff
from wessl.errors import UserError


class Source(ABC):
    """Pictures by number. `labels`, where there are any, index `classes` if those have names.

    >>> from wessl.data.sources.open import open_source
    >>> source = open_source("builtin://digits/train")
    >>> len(source), source.read(0).shape, source.labels[:3].tolist()
    (1297, (8, 8, 1), [1, 2, 6])
    """

    location: str
    labels: NDArray[np.int64] | None = None
    classes: list[str] | None = None
    note: str | None = None  # something about them that their owner should know
    passed_over: str | None = None  # what lies beside them and cannot be read
    parallel = True  # whether reading is work enough for other processes
    blocks: NDArray[np.int64] | None = None
    """How many pictures lie near each other: 0 to blocks[0] - 1, and so on. None: all alike."""
    ahead = 2
    """Chunks of pictures that a worker process has in hand; more where they come from far away."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def name(self, index: int) -> str: ...

    @abstractmethod
    def read(self, index: int, short_side: int | None = None) -> Pixels:
        """Picture `index` as uint8 height x width x channels; raises `BadPicture`."""

    def size(self, index: int) -> tuple[int, int]:
        """Height and width of picture `index`, from its header where it has one; as `read`."""
        height, width = self.read(index).shape[:2]
        return height, width

    def sample(self, most: int) -> list[int]:
        """Up to `most` pictures that stand for all, quickly read one after the other."""
        return np.linspace(0, len(self) - 1, min(len(self), most)).astype(int).tolist()

    @property
    @abstractmethod
    def channels(self) -> int: ...

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Changes with any name, size, modification time or array value."""

    @property
    def pixel_format(self) -> PixelFormat:
        """What files are brought to when they are read."""
        return PixelFormat(self.channels)

    def fingerprint_of(self, indices: NDArray[np.int64]) -> str:
        """Of these pictures alone."""
        return digest(self.fingerprint.encode(), indices)

    def encoded(self, index: int) -> bytes | None:
        """The bytes of the picture's own file, where there is one; raises `BadPicture`."""
        return None

    def read_encoded(self, file: bytes, short_side: int | None = None) -> Pixels:
        """`read` of a picture whose bytes are at hand; what is wrong is not said where."""
        return decode(file, PixelFormat(self.channels), short_side)

    def prefetch(self, indices: Sequence[int]) -> None:
        """A hint that these are read next, in any order; may be called from another thread."""
        return

    def stand_in(self, index: int, lost: bool) -> int:
        """The picture to take where `index` cannot be read; `lost` if all near it are lost too."""
        return (index + 1) % len(self)


class EncodedSource(Source):
    """Pictures that are files: each a path, or all bytes of one."""

    sampled = 1024
    """Files whose headers settle the pixel format."""
    _channels: int | None  # of the user, whatever the files suggest

    @abstractmethod
    def file(self, index: int) -> File:
        """That of picture `index`; raises `BadPicture` where there is none."""

    def read(self, index: int, short_side: int | None = None) -> Pixels:
        return decode(self.file(index), self.pixel_format, short_side)

    def size(self, index: int) -> tuple[int, int]:
        return picture_size(self.file(index))[1:]

    def encoded(self, index: int) -> bytes:
        file = self.file(index)
        try:
            return file if isinstance(file, bytes) else Path(file).read_bytes()
        except OSError as error:
            raise undecodable(error) from error

    def read_encoded(self, file: bytes, short_side: int | None = None) -> Pixels:
        return decode(file, self.pixel_format, short_side)

    @cached_property
    def pixel_format(self) -> PixelFormat:
        return sniff(self._files(self.sample(self.sampled)), self._channels)

    def _files(self, indices: Iterable[int]) -> Iterator[File]:
        for index in indices:
            try:
                file = self.file(index)
            except BadPicture:  # as good as an unreadable file: what is there decides
                continue
            yield file

    @property
    def channels(self) -> int:
        return self.pixel_format.channels

    def __getstate__(self) -> dict[str, Any]:
        # Settled here once, not again by every worker that receives a copy.
        return {**self.__dict__, "pixel_format": self.pixel_format}


class Subset(Source):
    """Some pictures of a source, in the given order, so that only those are decoded.

    >>> from wessl.data.sources.open import open_source
    >>> some = Subset(open_source("builtin://digits"), [3, 1, 4])
    >>> len(some), some.name(0), some.labels.tolist()
    (3, 'builtin://digits[3]', [3, 1, 4])
    """

    def __init__(self, source: Source, indices: ArrayLike):
        self.source, self.indices = source, np.asarray(indices, np.int64)
        if self.indices.ndim != 1 or not len(self.indices):
            raise ValueError(f"a subset needs a list of numbers; found shape {self.indices.shape}")
        if self.indices.min() < 0 or self.indices.max() >= len(source):
            raise ValueError(f"a subset's numbers must be from 0 to {len(source) - 1}")
        self.location = f"{source.location}#{digest(self.indices)[:12]}"
        self.labels = None if source.labels is None else source.labels[self.indices]
        self.classes, self.note = source.classes, source.note
        self.parallel, self.ahead = source.parallel, source.ahead

    def __len__(self) -> int:
        return len(self.indices)

    def name(self, index: int) -> str:
        return self.source.name(int(self.indices[index]))

    def read(self, index: int, short_side: int | None = None) -> Pixels:
        return self.source.read(int(self.indices[index]), short_side)

    def size(self, index: int) -> tuple[int, int]:
        return self.source.size(int(self.indices[index]))

    @property
    def channels(self) -> int:
        return self.source.channels

    @property
    def fingerprint(self) -> str:
        return self.source.fingerprint_of(self.indices)

    @property
    def pixel_format(self) -> PixelFormat:
        return self.source.pixel_format

    def encoded(self, index: int) -> bytes | None:
        return self.source.encoded(int(self.indices[index]))

    def read_encoded(self, file: bytes, short_side: int | None = None) -> Pixels:
        return self.source.read_encoded(file, short_side)

    def prefetch(self, indices: Sequence[int]) -> None:
        self.source.prefetch([int(self.indices[index]) for index in indices])


def cache_directory(directory: str | Path | None = None) -> Path:
    """The given directory, else `$WESSL_CACHE`, else `~/.cache/wessl`."""
    return Path(directory or os.environ.get("WESSL_CACHE") or "~/.cache/wessl").expanduser()


def number_labels(labels: NDArray[Any], where: str) -> tuple[NDArray[np.int64], list[str] | None]:
    """Whole numbers stand for themselves; strings are numbered in sorted order."""
    if labels.dtype.kind in "iu":
        if labels.min(initial=0) < 0:
            raise UserError(f"{where}: labels must not be negative")
        return labels.astype(np.int64), None
    if labels.dtype.kind not in "US":
        raise UserError(f"{where}: labels must be whole numbers or strings, not {labels.dtype}")
    classes, numbers = np.unique(labels.astype(str), return_inverse=True)
    return numbers.astype(np.int64), [str(name) for name in classes]


def digest(*parts: NDArray[Any] | bytes) -> str:
    found = hashlib.blake2b(digest_size=16)
    for part in parts:
        found.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).data)
    return found.hexdigest()
