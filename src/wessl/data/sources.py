"""Where pictures come from: a folder, a list of paths, arrays, or what a dependency ships.

`open_source` turns the DATA string of a command into a `Source`.
"""

import hashlib
import os
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wessl.data.arrays import digits, read_npz
from wessl.data.decode import ENDINGS, PixelFormat, Pixels, decode, shrink, sniff, with_channels
from wessl.data.names import Names, list_folder
from wessl.errors import UserError

_FORMS = (
    "a folder of pictures, a text file of paths, an .npz file with `images` (and `labels`), "
    "builtin://digits, builtin://digits/train or builtin://digits/test"
)


_PARTS = {"train", "training", "test", "testing", "val", "valid", "validation"}


class Source(ABC):
    """Pictures by number. `labels`, where there are any, index `classes` if those have names.

    >>> source = open_source("builtin://digits/train")
    >>> len(source), source.read(0).shape, source.labels[:3].tolist()
    (1297, (8, 8, 1), [1, 2, 6])
    """

    location: str
    labels: NDArray[np.int64] | None = None
    classes: list[str] | None = None
    note: str | None = None  # something about them that their owner should know
    parallel = True  # whether reading is work enough for other processes

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def name(self, index: int) -> str: ...

    @abstractmethod
    def read(self, index: int, short_side: int | None = None) -> Pixels:
        """Picture `index` as uint8 height x width x channels; raises `BadPicture`."""

    @property
    @abstractmethod
    def channels(self) -> int: ...

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """Changes with any name, size, modification time or array value."""


class FileSource(Source):
    """Picture files below `root`."""

    def __init__(self, location: str, root: str, names: Names, channels: int | None):
        self.location, self.root, self.names, self._channels = location, root, names, channels

    def __len__(self) -> int:
        return len(self.names)

    def name(self, index: int) -> str:
        return self.names[index]

    def path(self, index: int) -> str:
        return os.path.join(self.root, self.names[index])

    def read(self, index: int, short_side: int | None = None) -> Pixels:
        return decode(self.path(index), self.pixel_format, short_side)

    @cached_property
    def pixel_format(self) -> PixelFormat:
        sample = np.linspace(0, len(self) - 1, min(len(self), 1024)).astype(int)
        return sniff([self.path(i) for i in sample], self._channels)

    def __getstate__(self) -> dict[str, Any]:
        # Settled here once, not again by every worker that receives a copy.
        return {**self.__dict__, "pixel_format": self.pixel_format}

    @property
    def channels(self) -> int:
        return self.pixel_format.channels

    @cached_property
    def fingerprint(self) -> str:
        stats = np.empty((len(self), 2), np.int64)

        def look(block: range) -> None:
            for i in block:
                try:
                    info = os.stat(self.path(i))
                    stats[i] = info.st_size, info.st_mtime_ns
                except OSError:  # a listed file that is not there: decoding will name it
                    stats[i] = -1

        blocks = [range(i, min(i + 4096, len(self))) for i in range(0, len(self), 4096)]
        with ThreadPoolExecutor(8) as threads:  # network file systems answer slowly, not seldom
            list(threads.map(look, blocks))
        labels = np.zeros(0) if self.labels is None else self.labels
        return _digest(
            self.names.blob, self.names.bounds, stats, labels, str(self.classes).encode()
        )


class ArraySource(Source):
    """Pictures that are arrays already, (n, h, w, channels) uint8."""

    parallel = False  # sending the arrays to a process costs more than reading them

    def __init__(
        self,
        location: str,
        images: Pixels,
        labels: NDArray[Any] | None,
        channels: int | None = None,
    ):
        self.location, self.images = location, images
        if labels is not None:
            self.labels, self.classes = _number(labels, location)
        self._channels = channels or images.shape[3]
        if self._channels != images.shape[3] and {self._channels, images.shape[3]} != {1, 3}:
            raise UserError(
                f"{location} has {images.shape[3]} channels; they cannot become {self._channels}"
            )

    def __len__(self) -> int:
        return len(self.images)

    def name(self, index: int) -> str:
        return f"{self.location}[{range(len(self))[index]}]"

    def read(self, index: int, short_side: int | None = None) -> Pixels:
        return shrink(with_channels(self.images[index], self._channels), short_side)

    @property
    def channels(self) -> int:
        return self._channels

    @cached_property
    def fingerprint(self) -> str:
        labels = np.zeros(0) if self.labels is None else self.labels
        return _digest(np.array(self.images.shape), self.images, labels, str(self.classes).encode())


def open_source(
    data: str | Path, channels: int | None = None, directory: str | Path | None = None
) -> Source:
    """Open a DATA string; `channels` overrides what the pictures suggest.

    >>> len(open_source("builtin://digits/test"))
    500

    ::

        open_source("photos/")                # sub-folders become classes if they hold all pictures
        open_source("train.txt")              # a path a line, optionally a tab and a label
        open_source("cells.npz", channels=1)  # images (n, h, w) or (n, h, w, c), labels optional

    The index of a large folder is kept in `directory` (default: `cache_directory()`).
    """
    text = os.fspath(data)
    if text.startswith("builtin://"):
        return _digits(text, channels)
    if "://" in text:
        raise UserError(f"{text}: unknown kind of data; known are {_FORMS}")
    path = Path(text).expanduser()
    if path.is_dir():
        return _folder(path, channels, cache_directory(directory))
    if not path.exists():
        raise UserError(f"{text} does not exist; give {_FORMS}")
    if path.suffix.lower() == ".npz":
        return ArraySource(str(path.resolve()), *read_npz(path), channels)
    if path.suffix.lower() in ENDINGS:
        raise UserError(f"{text} is one picture; give {_FORMS}")
    return _list(path, channels)


def cache_directory(directory: str | Path | None = None) -> Path:
    """The given directory, else `$WESSL_CACHE`, else `~/.cache/wessl`."""
    return Path(directory or os.environ.get("WESSL_CACHE") or "~/.cache/wessl").expanduser()


def _folder(path: Path, channels: int | None, keep: Path) -> FileSource:
    root = os.fsencode(path.resolve())
    listing = list_folder(root, keep / f"index-{_digest(root)}.npz")
    if not len(listing.names):
        raise UserError(f"{path} holds no pictures ({' '.join(ENDINGS)}) at any depth")
    source = FileSource(os.fsdecode(root), os.fsdecode(root), listing.names, channels)
    source.labels, source.classes, source.note = listing.labels, listing.classes, listing.note
    if source.classes and {name.lower() for name in source.classes} <= _PARTS:
        parts = " and ".join(f"{name}/" for name in source.classes)
        source.note = (
            f"{path} holds {parts}, parts of a data set and not classes, so it has no labels; "
            f"for those give {path / source.classes[0]}"
        )
        source.labels = source.classes = None
    return source


def _list(path: Path, channels: int | None) -> FileSource:
    codes, known = array("q"), dict[bytes, int]()

    def paths() -> Iterable[bytes]:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if b"\0" in line:
                    raise UserError(f"{path} is not a text file; give {_FORMS}")
                name, tab, label = line.rstrip(b"\r\n").partition(b"\t")
                if name:
                    codes.append(known.setdefault(label, len(known)) if tab else -1)
                    if (codes[0] < 0) != (codes[-1] < 0):
                        raise UserError(f"{path}, line {number}: all lines need a label, or none")
                    yield name

    names = Names.collect(paths())
    if not len(names):
        raise UserError(f"{path} names no pictures; it needs a path a line")
    source = FileSource(str(path.resolve()), str(path.resolve().parent), names, channels)
    if known:
        whole = all(label.isdigit() for label in known)
        values = [int(label) if whole else os.fsdecode(label) for label in known]
        source.labels, source.classes = _number(np.array(values)[codes], str(path))
    return source


def _digits(name: str, channels: int | None) -> ArraySource:
    part = name.removeprefix("builtin://digits")
    if not name.startswith("builtin://digits") or part not in ("", "/train", "/test"):
        raise UserError(f"{name}: unknown kind of data; known are {_FORMS}")
    source = ArraySource(name, *digits(part), channels)
    source.classes = [str(digit) for digit in range(10)]
    return source


def _number(labels: NDArray[Any], where: str) -> tuple[NDArray[np.int64], list[str] | None]:
    """Whole numbers stand for themselves; strings are numbered in sorted order."""
    if labels.dtype.kind in "iu":
        if labels.min(initial=0) < 0:
            raise UserError(f"{where}: labels must not be negative")
        return labels.astype(np.int64), None
    if labels.dtype.kind not in "US":
        raise UserError(f"{where}: labels must be whole numbers or strings, not {labels.dtype}")
    classes, numbers = np.unique(labels.astype(str), return_inverse=True)
    return numbers.astype(np.int64), [str(name) for name in classes]


def _digest(*parts: NDArray[Any] | bytes) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part if isinstance(part, bytes) else np.ascontiguousarray(part).data)
    return digest.hexdigest()
