"""Published lists of the labelled pictures of a few-shot or 1 % evaluation.

One file name a line, the class before its first underscore, as those for ImageNet:
``n01440764_10026.JPEG``. What a list is, is told by what it holds and not by its name: the third
draw with 5 pictures a class is published as ``3imgs_class.txt``.
"""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wessl.data.sources.names import Names
from wessl.errors import UserError

_SLASH, _DOT = b"/."


class Pictures(Protocol):
    """The part of a source or a cache that a list is looked up in."""

    @property
    def names(self) -> Sequence[str]: ...
    @property
    def labels(self) -> NDArray[np.int64] | Tensor | None: ...
    @property
    def classes(self) -> list[str] | None: ...


def read_split(
    path: str | Path,
    names: Sequence[str],
    classes: Sequence[str] | None = None,
    only_known: bool = False,
) -> Tensor:
    """The numbers, sorted, of the pictures that a list names, among ``names`` (relative paths).

    Folders and endings do not matter: many keep ImageNet re-encoded. Every listed picture must be
    there, once, and its class among ``classes``, where those are named as in the list. With
    ``only_known`` lines of other classes are passed over: what concerns a subset of the classes.

    ::

        source = open_source("imagenet/train")
        one_percent = read_split("1percent.txt", source.names, source.classes)
    """
    listed = _lines(Path(path))
    classes_of = [_class(stem) for stem in listed]
    if classes is not None:
        unknown = sorted(set(classes_of) - set(classes))
        if unknown and not only_known and len(unknown) < len(set(classes_of)):
            raise UserError(f"{path} names {_some(unknown, 'class')} that the data does not have")
        if only_known:
            pairs = zip(listed, classes_of, strict=True)
            listed = [stem for stem, name in pairs if name not in unknown]
        if not listed:
            raise UserError(f"{path} names no picture of the data's classes")
    found = _find(listed, names)
    if missing := [stem for stem in listed if stem not in found]:
        raise UserError(f"{path} names {_some(missing, 'picture')} that the data does not have")
    if twice := [stem for stem in listed if len(found[stem]) > 1]:
        places = ", ".join(names[i] for i in found[twice[0]])
        raise UserError(f"{path}: {twice[0]} is there {len(found[twice[0]])} times: {places}")
    return torch.tensor(sorted(found[stem][0] for stem in listed))


def split_draws(
    lists: str | Path | Sequence[str | Path], pictures: Pictures, only_known: bool = False
) -> dict[int | str, list[Tensor]]:
    """Lists, given or all of a folder, by what they hold: ``{1: [...], 5: [...], "1%": [...]}``.

    A whole number is the pictures of every class, a share is a list whose classes differ in number;
    each has its draws in the order of the files' paths.
    """
    draws: dict[int | str, list[Tensor]] = {}
    seen: dict[bytes, Path] = {}
    for path in _files(lists):
        chosen = read_split(path, pictures.names, pictures.classes, only_known)
        same = seen.setdefault(chosen.numpy().tobytes(), path)
        if same != path:
            raise UserError(f"{same} and {path} hold the same pictures; keep one of them")
        draws.setdefault(_kind(chosen, pictures), []).append(chosen)
    return dict(sorted(draws.items(), key=lambda item: (isinstance(item[0], str), str(item[0]))))


def _files(lists: str | Path | Sequence[str | Path]) -> list[Path]:
    """The files given, and in place of a folder all lists below it, by path."""
    files: list[Path] = []
    for path in map(Path, [lists] if isinstance(lists, (str, Path)) else lists):
        found = sorted(path.rglob("*.txt")) if path.is_dir() else [path]
        if not found:
            raise UserError(f"{path} holds no .txt files, at any depth")
        files += found
    return files


def _kind(chosen: Tensor, pictures: Pictures) -> int | str:
    """Pictures a class if all have as many, else the share of the pictures of their classes."""
    if pictures.labels is None:
        counts = Counter(_class(os.path.basename(pictures.names[i])) for i in chosen.tolist())
        if len(set(counts.values())) == 1:
            return next(iter(counts.values()))
        return _percent(len(chosen) / len(pictures.names))
    labels = torch.as_tensor(pictures.labels)
    every, some = (x.bincount(minlength=int(labels.max()) + 1) for x in (labels, labels[chosen]))
    held = some > 0
    if len(some[held].unique()) == 1:
        return int(some[held][0])
    return _percent(len(chosen) / int(every[held].sum()))


def _percent(share: float) -> str:
    return f"{float(f'{100 * share:.2g}'):g}%"


def _lines(path: Path) -> list[str]:
    """The stems of the listed names, in order."""
    try:
        lines = path.read_text(encoding="utf-8").rstrip().splitlines()
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; give a list of picture names") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as a list of picture names: {error}") from error
    stems: dict[str, int] = {}
    for number, line in enumerate(lines, 1):
        stem = os.path.splitext(os.path.basename(line.strip()))[0]
        if "_" not in stem:
            what = f"{line.strip()!r} has no class before an underscore" if stem else "is blank"
            raise UserError(f"{path}, line {number}: {what}")
        if stem in stems:
            raise UserError(f"{path}, line {number}: {stem} is on line {stems[stem]} already")
        stems[stem] = number
    if not stems:
        raise UserError(f"{path} is empty; it needs a picture's name a line")
    return list(stems)


def _class(stem: str) -> str:
    return stem.split("_", 1)[0]


def _some(names: Sequence[str], kind: str) -> str:
    plural = {"class": "classes"}.get(kind, f"{kind}s") if len(names) > 1 else kind
    return f"{len(names)} {plural} ({', '.join(names[:5])}{', ...' * (len(names) > 5)})"


def _find(stems: Iterable[str], names: Sequence[str]) -> dict[str, list[int]]:
    """Where each stem occurs. Only names whose hash is that of a wanted one become strings."""
    table = names if isinstance(names, Names) else Names.collect(map(os.fsencode, names))
    wanted = set(stems)
    hashes = np.sort(_hash(Names.collect(map(os.fsencode, wanted)), whole=True))
    own = _hash(table)
    at = np.minimum(np.searchsorted(hashes, own), len(hashes) - 1)
    found: dict[str, list[int]] = {}
    for i in np.flatnonzero(hashes[at] == own).tolist():
        stem = os.path.splitext(os.path.basename(table[i]))[0]
        if stem in wanted:
            found.setdefault(stem, []).append(i)
    return found


def _hash(names: Names, whole: bool = False) -> NDArray[np.uint64]:
    """A number for each name's stem (or whole name), from its bytes, all names side by side."""
    starts, ends = names.bounds[:-1], names.bounds[1:]
    if not whole:
        starts = np.maximum(starts, _last(names, _SLASH) + 1)
        dots = _last(names, _DOT)
        ends = np.where(dots > starts, dots, ends)
    value = np.zeros(len(names), np.uint64)
    for byte in range(int((ends - starts).max(initial=0))):
        at = starts + byte
        inside = at < ends
        letter = names.blob[np.where(inside, at, 0)].astype(np.uint64)
        value = np.where(inside, value * np.uint64(0x100000001B3) + letter, value)
    return value


def _last(names: Names, byte: int) -> NDArray[np.int64]:
    """Where in the blob each name has this byte last, or -1."""
    marks = np.flatnonzero(names.blob == byte)
    before = np.searchsorted(marks, names.bounds[1:]) - 1
    if not len(marks):
        return np.full(len(names), -1)
    place = marks[np.maximum(before, 0)]
    return np.where((before >= 0) & (place >= names.bounds[:-1]), place, -1)
