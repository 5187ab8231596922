"""Picture files: those below a folder, or those that a text file names."""

import codecs
import os
from array import array
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from wessl.data.decoding.bad_pictures import BadPicture
from wessl.data.decoding.decode import ENDINGS, Pixels
from wessl.data.forms import FORMS
from wessl.data.sources.names import Names, list_folder
from wessl.data.sources.source import EncodedSource, digest, number_labels
from wessl.errors import UserError

TO_LEARN_FROM = ("train", "training")
TO_TEST_ON = ("test", "testing", "val", "valid", "validation")
"""What folders of a data set's parts are called."""


def is_parts(names: Iterable[str]) -> bool:
    """Whether these folders are a data set's parts and not its classes.

    >>> is_parts({"Train", "val"}), is_parts({"test"}), is_parts({"test", "cat"}), is_parts(set())
    (True, True, False, False)
    """
    lower = {name.lower() for name in names}
    return bool(lower) and lower <= {*TO_LEARN_FROM, *TO_TEST_ON}


def look_at_files(count: int, look: Callable[[range], None]) -> None:
    """All numbers below `count`, in threads: network file systems answer slowly, not seldom."""
    blocks = [range(i, min(i + 512, count)) for i in range(0, count, 512)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(look, blocks))


class FileSource(EncodedSource):
    """Picture files below `root`."""

    def __init__(self, location: str, root: str, names: Names, channels: int | None):
        self.location, self.root, self.names, self._channels = location, root, names, channels

    def __len__(self) -> int:
        return len(self.names)

    def name(self, index: int) -> str:
        return self.names[index]

    def file(self, index: int) -> str:
        return os.path.join(self.root, self.names[index])

    @cached_property
    def fingerprint(self) -> str:
        labels = np.zeros(0) if self.labels is None else self.labels
        stats = self._stats(np.arange(len(self)))
        classes = str(self.classes).encode()
        return digest(self.names.blob, self.names.bounds, stats, labels, classes)

    def fingerprint_of(self, indices: NDArray[np.int64]) -> str:
        labels = np.zeros(0) if self.labels is None else self.labels[indices]
        names = self.names.take(indices)
        classes = str(self.classes).encode()
        return digest(names.blob, names.bounds, self._stats(indices), labels, classes)

    def _stats(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sizes and modification times, `(n, 2)`."""
        stats = np.empty((len(indices), 2), np.int64)

        def look(block: range) -> None:
            for row in block:
                try:
                    info = os.stat(self.file(int(indices[row])))
                    stats[row] = info.st_size, info.st_mtime_ns
                except OSError:  # a listed file that is not there: decoding will name it
                    stats[row] = -1

        look_at_files(len(stats), look)
        return stats


class ListSource(FileSource):
    """Picture files that the lines of a text file name."""

    lines: NDArray[np.int64]

    def read(self, index: int, short_side: int | None = None) -> Pixels:
        try:
            return super().read(index, short_side)
        except BadPicture as bad:
            where = f"line {self.lines[index]} of {os.path.basename(self.location)}"
            raise BadPicture(f"{bad} ({where})") from bad


def open_folder(path: Path, channels: int | None, keep: Path) -> FileSource | None:
    """The pictures at any depth; None if there are none. Its index, if large, is kept in `keep`."""
    root = os.fsencode(path.resolve())
    listing = list_folder(root, keep / f"index-{digest(root)}.npz")
    if not len(listing.names):
        return None
    source = FileSource(os.fsdecode(root), os.fsdecode(root), listing.names, channels)
    source.labels, source.classes, source.note = listing.labels, listing.classes, listing.note
    source.passed_over = listing.passed_over
    if source.classes and is_parts(source.classes):
        parts = " and ".join(f"{name}/" for name in source.classes)
        source.note = (
            f"{path} holds {parts}, parts of a data set and not classes, so it has no labels; "
            f"for those give {path / max(source.classes, key=_is_train)}"
        )
        source.labels = source.classes = None
    return source


def _is_train(name: str) -> bool:
    return name.lower().startswith("train")


def open_list(path: Path, channels: int | None) -> ListSource:
    """A path a line, absolute or from the text file's own folder; optionally a tab and a label."""
    codes, lines, known = array("q"), array("q"), dict[bytes, int]()

    def paths() -> Iterable[bytes]:
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)  # as Windows' editors begin a file
                if b"\0" in line:
                    raise UserError(f"{path} is not a text file (line {number}); give {FORMS}")
                name, tab, label = line.rstrip(b"\r\n").partition(b"\t")
                if not name and tab:
                    raise UserError(f"{path}, line {number}: a label without a path before it")
                if name:
                    codes.append(known.setdefault(label, len(known)) if tab else -1)
                    lines.append(number)
                    if (codes[0] < 0) != (codes[-1] < 0):
                        raise UserError(f"{path}, line {number}: all lines need a label, or none")
                    yield name

    names = Names.collect(paths())
    if not len(names):
        raise UserError(f"{path} names no pictures; it needs a path a line ({' '.join(ENDINGS)})")
    source = ListSource(str(path.resolve()), str(path.resolve().parent), names, channels)
    source.lines = np.frombuffer(lines, np.int64)
    if known:
        whole = all(label.isdigit() for label in known)
        values = [int(label) if whole else os.fsdecode(label) for label in known]
        source.labels, source.classes = number_labels(np.array(values)[codes], str(path))
    return source
