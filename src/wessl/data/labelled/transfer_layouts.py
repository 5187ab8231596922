"""How seven labelled datasets lie on disk after their official archives are extracted.

Each function turns a folder into lists of (path below the folder, class), one a part.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from wessl.data.labelled.splits import few_shot_draws
from wessl.errors import UserError

Listing = list[tuple[str, str]]
CALTECH_SHOTS = 30
_PICTURES = (".jpg", ".jpeg", ".png")


def food101(home: Path) -> dict[str, Listing]:
    return {
        part: [(f"images/{name}.jpg", _parent(name)) for name in _lines(home / f"meta/{part}.txt")]
        for part in ("train", "test")
    }


def dtd(home: Path) -> dict[str, Listing]:
    """The first of its ten splits, as is usual."""
    return {
        part: [(f"images/{name}", _parent(name)) for name in _lines(home / f"labels/{part}1.txt")]
        for part in ("train", "val", "test")
    }


def pets(home: Path) -> dict[str, Listing]:
    """A line is a picture's name, its class's number, the species and the breed's number."""
    files = {"train": "annotations/trainval.txt", "test": "annotations/test.txt"}
    parts = {}
    for part, file in files.items():
        names = [line.split()[0] for line in _lines(home / file)]
        parts[part] = [(f"images/{name}.jpg", name.rpartition("_")[0]) for name in names]
    return parts


def sun397(home: Path) -> dict[str, Listing]:
    """The first of its ten partitions; scenes may be two folders deep (/a/apse/indoor)."""
    lists = {}
    for part, name in {"train": "Training_01.txt", "test": "Testing_01.txt"}.items():
        names = [line.strip().lstrip("/") for line in _lines(home / _first(home, name))]
        lists[part] = names
    place = next((p for p in ("", "SUN397/") if (home / p / lists["train"][0]).exists()), "")
    return {
        part: [(place + name, _parent(name)) for name in names] for part, names in lists.items()
    }


def cars(home: Path) -> dict[str, Listing]:
    """The devkit of 2013, whose test labels are a file of their own, or the older single list."""
    if (home / "cars_annos.mat").exists():
        rows = _matrix(
            home / "cars_annos.mat", "annotations", ("relative_im_path", "class", "test")
        )
        parts: dict[str, Listing] = {"train": [], "test": []}
        for path, number, test in zip(*rows, strict=True):
            parts["test" if test else "train"].append((str(path), f"{int(number):03d}"))
        return parts
    labelled = "cars_test_annos_withlabels.mat"
    files = {"train": "devkit/cars_train_annos.mat", "test": _first(home, labelled, "devkit/")}
    found = {}
    for part, file in files.items():
        names, numbers = _matrix(home / file, "annotations", ("fname", "class"))
        found[part] = [
            (f"cars_{part}/{name}", f"{int(number):03d}")
            for name, number in zip(names, numbers, strict=True)
        ]
    return found


def flowers102(home: Path) -> dict[str, Listing]:
    (labels,) = _matrix(home / "imagelabels.mat", None, ("labels",))
    fields = {"train": "trnid", "val": "valid", "test": "tstid"}
    rows = _matrix(home / "setid.mat", None, tuple(fields.values()))
    last = max((int(numbers.max()) for numbers in rows), default=0)
    if last > len(labels):
        raise UserError(
            f"{home}/setid.mat names picture {last}, imagelabels.mat {len(labels)} labels"
        )
    return {
        part: [(f"jpg/image_{i:05d}.jpg", f"{int(labels[i - 1]):03d}") for i in numbers.tolist()]
        for part, numbers in zip(fields, rows, strict=True)
    }


def caltech101(home: Path, seed: int = 0) -> dict[str, Listing]:
    """30 pictures a class for training, drawn by seed, all others for testing; no background."""
    everything: Listing = []
    root = home / "101_ObjectCategories" if (home / "101_ObjectCategories").exists() else home
    for folder in sorted(path for path in root.iterdir() if path.is_dir()):
        if folder.name != "BACKGROUND_Google":
            names = sorted(p.name for p in folder.iterdir() if p.suffix.lower() in _PICTURES)
            place = folder.relative_to(home).as_posix()
            everything += [(f"{place}/{name}", folder.name) for name in names]
    classes = sorted({name for _, name in everything})
    if not classes:
        raise UserError(f"{root} holds no class folders with pictures")
    labels = torch.tensor([classes.index(name) for _, name in everything])
    (chosen,) = few_shot_draws(labels, CALTECH_SHOTS, 1, seed, classes)
    train = set(chosen.tolist())
    parts = {
        "train": [everything[i] for i in sorted(train)],
        "test": [pair for i, pair in enumerate(everything) if i not in train],
    }
    if untested := sorted(set(classes) - {name for _, name in parts["test"]}):
        raise UserError(
            f"{root}: {untested[0]} has {CALTECH_SHOTS} pictures, so none is left to test"
        )
    return parts


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _first(home: Path, name: str, *others: str) -> str:
    """Where below ``home`` a file lies that people put in one of several places."""
    places = ("", *others, "Partitions/", "partitions/")
    return next((p + name for p in places if (home / p / name).exists()), name)


def _lines(path: Path) -> list[str]:
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; extract the whole archive") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as a list of pictures: {error}") from error
    if not lines:
        raise UserError(f"{path} names no pictures")
    return [line.strip() for line in lines]


def _matrix(path: Path, table: str | None, fields: Sequence[str]) -> list[Any]:
    """Fields of MATLAB's file, or of one table in it, each as a flat array."""
    from scipy.io import loadmat

    if not path.exists():
        raise UserError(f"{path} does not exist; extract the whole archive")
    try:
        held = loadmat(path, squeeze_me=True)
        rows = held if table is None else held[table]
        return [_flat(rows[field]) for field in fields]
    except (KeyError, ValueError) as error:
        wanted = ", ".join(fields)
        raise UserError(f"{path} holds no {wanted}: {error}") from error
    except Exception as error:  # a damaged file may raise anything at all
        raise UserError(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def _flat(value: Iterable[Any]) -> Any:
    return np.atleast_1d(np.asarray(value)).ravel()
