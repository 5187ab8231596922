"""Labelled datasets to measure an encoder on: the paper's nine, or any with class folders.

``open_transfer_set("food101:PATH")``, or the path alone where its files tell which it is.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from wessl.data.labelled import transfer_layouts as layouts
from wessl.data.labelled.cifar import cifar10, cifar100
from wessl.data.labelled.splits import held_out
from wessl.data.labelled.transfer_layouts import Listing
from wessl.data.sources.names import Names
from wessl.data.sources.open import ArraySource, FileSource, Source, open_source
from wessl.errors import UserError

Metric = Literal["top-1", "mean per class"]


@dataclass(frozen=True)
class TransferSet:
    """Training and test pictures in one numbering of classes; ``val`` where the dataset has one."""

    name: str
    train: Source
    val: Source | None
    test: Source
    metric: Metric
    split: str  # in words

    @property
    def classes(self) -> list[str]:
        return self.train.classes or []


@dataclass(frozen=True)
class _Kind:
    marks: tuple[str, ...]  # files or folders, any of which tells this dataset
    metric: Metric
    split: str
    read: Callable[[Path], dict[str, Listing]] | None = None


_OFFICIAL = "the official training and test pictures"
_KINDS = {
    "food101": _Kind(("meta/train.txt",), "top-1", _OFFICIAL, layouts.food101),
    "cifar10": _Kind(("data_batch_1", "data_batch_1.bin"), "top-1", _OFFICIAL),
    "cifar100": _Kind(("file:train", "train.bin"), "top-1", _OFFICIAL),
    "sun397": _Kind(
        ("Training_01.txt", "Partitions/Training_01.txt", "partitions/Training_01.txt"),
        "top-1",
        "the first of the ten official partitions",
        layouts.sun397,
    ),
    "cars": _Kind(
        ("devkit/cars_train_annos.mat", "cars_annos.mat"), "top-1", _OFFICIAL, layouts.cars
    ),
    "dtd": _Kind(
        ("labels/train1.txt",), "top-1", "the first of the ten official splits", layouts.dtd
    ),
    "pets": _Kind(("annotations/trainval.txt",), "mean per class", _OFFICIAL, layouts.pets),
    "caltech101": _Kind(
        ("101_ObjectCategories", "BACKGROUND_Google", "Faces_easy"),
        "mean per class",
        f"{layouts.CALTECH_SHOTS} pictures a class for training, drawn by seed, without background",
        layouts.caltech101,
    ),
    "flowers102": _Kind(("setid.mat",), "mean per class", _OFFICIAL, layouts.flowers102),
}
NAMES = tuple(_KINDS)
_HELD_OUT = 0.2
_FORMS = (
    f"NAME:PATH with a name of {', '.join(NAMES)}, a folder with train/ and test/ (or val/), or "
    "one with a folder a class"
)


def open_transfer_sets(
    paths: Sequence[str | Path],
    channels: int | None = None,
    seed: int = 0,
    directory: str | Path | None = None,
) -> list[TransferSet]:
    """Each as ``open_transfer_set`` does; results are kept by name, so no two may have one."""
    known: dict[str, tuple[str | Path, TransferSet]] = {}
    for path in paths:
        one = open_transfer_set(path, channels, seed, directory)
        if one.name in known:
            raise UserError(
                f"--transfer {known[one.name][0]} and {path} have one name, {one.name!r}, under "
                "which results are kept; rename a folder, or leave one out"
            )
        known[one.name] = path, one
    return [one for _, one in known.values()]


def open_transfer_set(
    data: str | Path,
    channels: int | None = None,
    seed: int = 0,
    directory: str | Path | None = None,
) -> TransferSet:
    """A dataset by name and path, by its path alone, or from folders ``train`` and ``test``.

    ``channels`` overrides what the pictures suggest; ``seed`` draws Caltech-101's training set, and
    the fifth of each class that is tested on where there are class folders alone.

    ::

        open_transfer_set("pets:~/data/oxford-iiit-pet")
        open_transfer_set("~/data/cifar-10-batches-py")
        open_transfer_set("shells/")            # shells/train/CLASS/*, shells/test/CLASS/*
        open_transfer_set("stones/")            # stones/CLASS/*
    """
    text = os.fspath(data)
    name, colon, rest = text.partition(":")
    named = name in _KINDS and bool(colon)
    root = Path(rest if named else text).expanduser()
    if not root.is_dir():
        raise UserError(f"{text}: {root} is no folder; give {_FORMS}")
    root = root.resolve()
    for kind in [name] if named else NAMES:
        if (home := _home(root, _KINDS[kind])) is not None:
            return _open(kind, home, channels, seed)
    if named:
        wanted = " or ".join(mark.removeprefix("file:") for mark in _KINDS[name].marks)
        raise UserError(f"{text}: neither this folder nor one in it holds {wanted}")
    return _class_folders(root, channels, seed, directory)


def _home(root: Path, kind: _Kind) -> Path | None:
    """The folder, or one in it, that has a mark: archives bring a folder of their own."""
    inside = sorted(path for path in root.iterdir() if path.is_dir())
    return next((home for home in (root, *inside) for mark in kind.marks if _has(home, mark)), None)


def _has(home: Path, mark: str) -> bool:
    if mark.startswith("file:"):  # where a folder of the same name would mean something else
        return (home / mark.removeprefix("file:")).is_file()
    return (home / mark).exists()


def _open(name: str, home: Path, channels: int | None, seed: int) -> TransferSet:
    kind = _KINDS[name]
    if kind.read is None:
        arrays, classes = (cifar10 if name == "cifar10" else cifar100)(home)
        parts: dict[str, Source] = {}
        for part, (pictures, labels) in arrays.items():
            source = ArraySource(f"{name}:{home}/{part}", pictures, labels, channels)
            source.classes = classes
            parts[part] = source
    else:
        caltech = name == "caltech101"
        listings = layouts.caltech101(home, seed) if caltech else kind.read(home)
        classes = sorted({label for listing in listings.values() for _, label in listing})
        mark = f"-seed{seed}" if caltech else ""
        parts = {
            part: _files(f"{name}:{home}/{part}{mark}", home, listing, classes, channels)
            for part, listing in listings.items()
        }
    split = f"{kind.split} (seed {seed})" if name == "caltech101" else kind.split
    return TransferSet(name, parts["train"], parts.get("val"), parts["test"], kind.metric, split)


def _files(
    location: str, home: Path, listing: Listing, classes: list[str], channels: int | None
) -> FileSource:
    _check_present(location, home, [path for path, _ in listing])
    names = Names.collect(os.fsencode(path) for path, _ in listing)
    source = FileSource(location, str(home), names, channels)
    number = {label: i for i, label in enumerate(classes)}
    source.labels = np.array([number[label] for _, label in listing], np.int64)
    source.classes = classes
    return source


def _check_present(location: str, home: Path, paths: list[str]) -> None:
    """Every listed picture is there; one look at a folder is quicker than one at each file."""
    there: dict[str, set[str]] = {}
    missing = []
    for path in paths:
        folder, _, file = path.rpartition("/")
        if folder not in there:
            place = home / folder
            there[folder] = set(os.listdir(place)) if place.is_dir() else set()
        if file not in there[folder]:
            missing.append(path)
    if missing:
        some = ", ".join(missing[:5]) + ", ..." * (len(missing) > 5)
        raise UserError(
            f"{location}: {len(missing)} of {len(paths)} pictures are not there ({some}); "
            "extract the whole archive"
        )


def _class_folders(
    root: Path, channels: int | None, seed: int, directory: str | Path | None
) -> TransferSet:
    """``val`` is for choosing where there is a ``test`` too, and for testing where there is not."""
    there = [part for part in ("train", "val", "test") if (root / part).is_dir()]
    if not there and (found := _parted(root, channels, seed, directory)) is not None:
        return found
    if "train" not in there or len(there) == 1:
        raise UserError(f"{root} is none of the known datasets; give {_FORMS}")
    parts = {part: open_source(root / part, channels, directory) for part in there}
    classes = parts["train"].classes
    for part, source in parts.items():
        if source.labels is None or source.classes is None or classes is None:
            raise UserError(f"{root / part} has no class folders; a folder a class is needed")
        if unknown := sorted(set(source.classes) - set(classes)):
            raise UserError(f"{root / part} has classes that train lacks: {', '.join(unknown[:5])}")
        source.labels = np.array([classes.index(name) for name in source.classes])[source.labels]
        source.classes = classes
    val = parts["val"] if len(there) == 3 else None
    return TransferSet(
        root.name, parts["train"], val, parts[there[-1]], "top-1", f"folders {', '.join(there)}"
    )


def _parted(
    root: Path, channels: int | None, seed: int, directory: str | Path | None
) -> TransferSet | None:
    """A fifth of every class tested on, where there is a folder a class and nothing more."""
    if not any(path.is_dir() for path in root.iterdir()):
        return None
    whole = open_source(root, channels, directory)
    if not isinstance(whole, FileSource) or whole.labels is None or whole.classes is None:
        return None
    classes = whole.classes
    listed = [(name, classes[label]) for name, label in zip(whole.names, whole.labels, strict=True)]
    rows = held_out(torch.from_numpy(whole.labels), _HELD_OUT, seed)
    if not len(rows[1]):
        raise UserError(f"{root} has one picture a class, none to test on; give train/ and test/")
    train, test = (
        _files(f"{root}/{part}-seed{seed}", root, [listed[i] for i in own], classes, channels)
        for part, own in zip(("train", "test"), (part.tolist() for part in rows), strict=True)
    )
    split = f"{_HELD_OUT:.0%} of each class tested on, drawn by seed {seed}"
    return TransferSet(root.name, train, None, test, "top-1", split)
