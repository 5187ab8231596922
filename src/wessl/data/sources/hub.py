"""Data sets of the Hugging Face hub, or in its format on a disk: `hf://name[#config][:split]`."""

import os
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wessl.data.decoding.bad_pictures import BadPicture
from wessl.data.decoding.decode import File
from wessl.data.sources.source import EncodedSource, digest, number_labels
from wessl.errors import UserError, pip_install

_NAMES = ("image", "img", "picture", "pixel_values")
_LABELS = ("label", "labels", "fine_label", "class", "target")


class HubSource(EncodedSource):
    """Pictures of the column `column` of a `datasets.Dataset`, which stays on the disk."""

    sampled = 256

    def __init__(self, location: str, table: Any, column: str, channels: int | None):
        self.location, self.table, self.column, self._channels = location, table, column, channels

    def __len__(self) -> int:
        return len(self.table)

    def name(self, index: int) -> str:
        return f"{self.location}[{range(len(self))[index]}]"

    def file(self, index: int) -> File:
        held = self.table[int(index)][self.column]
        if not held or not (held["bytes"] or held["path"]):
            raise BadPicture("there is none in this row")
        return held["bytes"] or str(held["path"])

    @cached_property
    def fingerprint(self) -> str:
        files = [str(entry["filename"]) for entry in self.table.cache_files]
        stats = [(os.path.getsize(file), os.stat(file).st_mtime_ns) for file in files]
        about = str((self.table._fingerprint, stats, len(self), self.column, self.classes))
        return digest(about.encode())


def open_hub(text: str, channels: int | None) -> HubSource:
    """Open `hf://name[#config][:split]`; the name may be a path, as `load_dataset` allows."""
    try:
        import datasets
    except ImportError:
        raise UserError(
            f"{text}: data sets of the hub need the package datasets: " + pip_install("'wessl[hf]'")
        ) from None
    table = _load(text, datasets)
    column = _picture_column(text, table.features, datasets)
    table = table.cast_column(column, datasets.Image(decode=False))
    source = HubSource(text, table, column, channels)
    source.labels, source.classes = _labels(text, table, datasets)
    if not len(source):
        raise UserError(f"{text} has no rows")
    return source


def _load(text: str, datasets: Any) -> Any:
    name, _, split = text.removeprefix("hf://").partition(":")
    name, _, config = name.partition("#")
    if not name:
        raise UserError(f"{text}: a name is missing; write hf://name or hf://name:split")
    try:
        if (Path(name) / "state.json").exists() or (Path(name) / "dataset_dict.json").exists():
            found = datasets.load_from_disk(name)
        else:
            found = datasets.load_dataset(name, config or None)
    except Exception as error:  # of the network, of the hub, of a file, of its builder
        raise UserError(f"{text} cannot be opened ({type(error).__name__}: {error})") from error
    if not isinstance(found, dict):
        if split:
            raise UserError(f"{text}: it has no splits; write hf://{name}")
        return found
    chosen = split or ("train" if "train" in found else next(iter(found)))
    if chosen not in found or (not split and len(found) > 1 and "train" not in found):
        splits = ", ".join(found)
        raise UserError(
            f"{text}: choose one of its splits, {splits}: hf://{name}:{next(iter(found))}"
        )
    return found[chosen]


def _picture_column(text: str, features: Any, datasets: Any) -> str:
    columns = [name for name, kind in features.items() if isinstance(kind, datasets.Image)]
    if not columns:
        held = ", ".join(f"{name} ({type(kind).__name__})" for name, kind in features.items())
        raise UserError(f"{text} has no column of pictures; its columns are {held}")
    return next((name for name in _NAMES if name in columns), columns[0])


def _labels(
    text: str, table: Any, datasets: Any
) -> tuple[NDArray[np.int64] | None, list[str] | None]:
    kinds = table.features
    named = [name for name, kind in kinds.items() if isinstance(kind, datasets.ClassLabel)]
    named += [name for name in _LABELS if isinstance(kinds.get(name), datasets.Value)]
    if not named:
        return None, None
    column = next((name for name in _LABELS if name in named), named[0])
    values = np.asarray(table.select_columns(column)[:][column])
    if values.dtype.kind == "i" and (values < 0).any():  # how a split says that it hides them
        return None, None
    if values.dtype.kind not in "iuU":
        return None, None
    labels, classes = number_labels(values, text)
    if isinstance(kinds[column], datasets.ClassLabel):
        classes = list(kinds[column].names)
    return labels, classes
