"""The names of many pictures: listed from a folder, sorted, and kept for the next time.

They lie in one array of bytes (`Names`), so that a million files cost the bytes of their names and
not a million objects.
"""

import os
import time
import warnings
import zipfile
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from wessl.data.forms import ENDINGS, UNREAD
from wessl.errors import UserError

KEEP_INDEX_FROM = 10_000


class Names(Sequence[str]):
    """Many strings in one array of bytes, each made only when asked for.

    >>> Names.collect([b"a.png", b"b.png"])[1]
    'b.png'
    """

    def __init__(self, blob: NDArray[np.uint8], bounds: NDArray[np.int64]):
        self.blob, self.bounds = blob, bounds

    @classmethod
    def collect(cls, names: Iterable[bytes]) -> "Names":
        blob, bounds = bytearray(), array("q", [0])
        for name in names:
            blob += name
            bounds.append(len(blob))
        return cls(np.frombuffer(blob, np.uint8), np.frombuffer(bounds, np.int64))

    @classmethod
    def join(cls, parts: Sequence["Names"]) -> "Names":
        """The names of all parts, one after the other."""
        lengths = np.concatenate([np.diff(part.bounds) for part in parts])
        bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        return cls(np.concatenate([part.blob for part in parts]), bounds)

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        return os.fsdecode(self.blob[self.bounds[index] : self.bounds[index + 1]].tobytes())

    def order(self) -> NDArray[np.int64]:
        """What sorts by bytes: stable sorts by eight bytes at a time, last first."""
        starts, ends = self.bounds[:-1], self.bounds[1:]
        order = np.arange(len(self))
        for column in reversed(range(0, int((ends - starts).max(initial=0)), 8)):
            key = np.zeros(len(self), np.uint64)
            for byte in range(column, column + 8):
                at = starts + byte
                value = np.where(at < ends, self.blob[np.minimum(at, len(self.blob) - 1)], 0)
                key = (key << np.uint64(8)) | value.astype(np.uint64)
            order = order[np.argsort(key[order], kind="stable")]
        return order

    def take(self, order: NDArray[np.int64]) -> "Names":
        lengths = np.diff(self.bounds)[order]
        bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        blob = np.empty(bounds[-1], np.uint8)
        for first in range(0, len(order), 65536):  # in blocks: positions are eight times the bytes
            block = slice(first, first + 65536)
            start, stop = bounds[first], bounds[min(first + 65536, len(order))]
            shift = self.bounds[order[block]] - bounds[:-1][block]
            blob[start:stop] = self.blob[np.repeat(shift, lengths[block]) + np.arange(start, stop)]
        return Names(blob, bounds)


@dataclass
class Listing:
    """The pictures below a folder; labels and class names if all lie in two or more sub-folders."""

    names: Names
    labels: NDArray[np.int64] | None = None
    classes: list[str] | None = None
    note: str | None = None
    """Why there are no labels where one would expect them."""
    passed_over: str | None = None
    """Which pictures are not among them, for their endings."""


def list_folder(root: bytes, index: Path) -> Listing:
    """Lists `root`; the listing of a large folder is kept in the file `index`."""
    tree = _recall(root, index)
    if tree is None:
        tree = _scan(root)
        if len(tree["tops"]) >= KEEP_INDEX_FROM:
            _remember(tree, index)
    listing = Listing(Names(tree["blob"], tree["bounds"]))
    listing.passed_over = _passed_over(tree["unread"])
    tops = tree["tops"]
    used = np.unique(tops)
    stray = np.flatnonzero(tops < 0)
    if len(stray):
        if len(used) > 2 and 2 * len(stray) < len(tops):
            listing.note = _stray(listing.names, stray)
        return listing
    if len(used) < 2:
        return listing
    all_tops = Names(tree["top_blob"], tree["top_bounds"])
    by_name = sorted((all_tops[int(top)], int(top)) for top in used)
    number = np.zeros(int(used[-1]) + 1, np.int64)
    number[[top for _, top in by_name]] = np.arange(len(by_name))
    listing.labels, listing.classes = number[tops], [name for name, _ in by_name]
    return listing


def _passed_over(counts: NDArray[np.int64]) -> str | None:
    found = [f"{count:,} {ending}" for ending, count in zip(UNREAD, counts, strict=True) if count]
    if not found:
        return None
    return f"passed over, as only {' '.join(ENDINGS)} are read: {', '.join(found)}"


def _stray(names: Names, stray: NDArray[np.int64]) -> str:
    named = ", ".join(names[int(i)] for i in stray[:3])
    some = f"{named} and {len(stray) - 3} more lie" if len(stray) > 3 else f"{named} lie"
    some, them = (f"{named} lies", "it") if len(stray) == 1 else (some, "them")
    return (
        f"no labels: {some} beside the sub-folders, which are classes only if they hold all "
        f"pictures; move {them} into one, or away, to have labels"
    )


def _scan(root: bytes) -> dict[str, NDArray[Any]]:
    """List a tree, sorted by path, with the first-level folder of each picture (-1: none)."""
    now = time.time_ns()
    endings = tuple(ending.encode() for ending in ENDINGS)
    blob, bounds, tops, mtimes = bytearray(), array("q", [0]), array("i"), array("q")
    unread = dict.fromkeys((ending.encode() for ending in UNREAD), 0)
    folders: list[bytes] = []
    top_names: list[bytes] = []
    stack: list[tuple[bytes, int, tuple[tuple[int, int], ...]]] = [(b"", -1, ())]
    while stack:
        here, top, above = stack.pop()
        info = os.stat(os.path.join(root, here))
        if (identity := (info.st_dev, info.st_ino)) in above:
            continue  # a link back to a folder it lies in
        folders.append(here)
        mtimes.append(info.st_mtime_ns)  # taken before listing, so a change meanwhile is seen later
        try:
            with os.scandir(os.path.join(root, here)) as entries:
                for entry in entries:
                    if entry.name.startswith(b"."):
                        continue
                    inside = os.path.join(here, entry.name)
                    if entry.is_dir():
                        if not here:
                            top_names.append(entry.name)
                        below = top if here else len(top_names) - 1
                        stack.append((inside, below, (*above, identity)))
                    elif entry.name.lower().endswith(endings):
                        blob += inside
                        bounds.append(len(blob))
                        tops.append(top)
                    elif (ending := os.path.splitext(entry.name)[1].lower()) in unread:
                        unread[ending] += 1
        except PermissionError as error:
            raise UserError(f"{os.fsdecode(error.filename)} may not be read") from error
    found = Names(np.frombuffer(blob, np.uint8), np.frombuffer(bounds, np.int64))
    order = found.order()
    names, top_table, folder_table = (
        found.take(order),
        Names.collect(top_names),
        Names.collect(folders),
    )
    return {
        "blob": names.blob,
        "bounds": names.bounds,
        "tops": np.frombuffer(tops, np.int32)[order],
        "top_blob": top_table.blob,
        "top_bounds": top_table.bounds,
        "folder_blob": folder_table.blob,
        "folder_bounds": folder_table.bounds,
        "mtimes": np.frombuffer(mtimes, np.int64),
        "unread": np.array(list(unread.values())),
        "scanned": np.array(now),
    }


def _recall(root: bytes, index: Path) -> dict[str, NDArray[Any]] | None:
    """A kept index, if no folder was modified since: that is how files come, go and change name.

    A folder modified within two seconds of the scan may have changed again within one tick of the
    file system's clock, so such an index is not trusted.
    """
    try:
        with np.load(index, allow_pickle=False) as kept:
            tree = {key: kept[key] for key in kept.files}
        folders = Names(tree["folder_blob"], tree["folder_bounds"])
        paths = (os.path.join(os.fsdecode(root), folder) for folder in folders)
        if len(tree["unread"]) != len(UNREAD):
            return None
        mtimes = np.array([os.stat(path).st_mtime_ns for path in paths])
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None  # absent, of another version, or a folder has gone: list again
    settled = mtimes.max() < tree["scanned"] - 2_000_000_000
    return tree if settled and np.array_equal(mtimes, tree["mtimes"]) else None


def _remember(tree: dict[str, NDArray[Any]], index: Path) -> None:
    part = index.with_name(f"{index.stem}.{os.getpid()}.part.npz")
    try:
        index.parent.mkdir(parents=True, exist_ok=True)
        np.savez(part, allow_pickle=False, **tree)
        os.replace(part, index)
    except OSError as error:
        part.unlink(missing_ok=True)
        warnings.warn(f"the folder's index could not be kept ({error})", stacklevel=2)
