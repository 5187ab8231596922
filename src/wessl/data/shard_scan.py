"""One pass over the headers of tar shards in the WebDataset layout: pictures, names and labels.

Members whose names agree up to the first dot are one sample: `0001.jpg` with its label in
`0001.cls`, or in `0001.json` under "label", "cls" or "class".
"""

import json
import tarfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from wessl.data.decode import ENDINGS
from wessl.data.names import Names
from wessl.data.source import number_labels
from wessl.errors import UserError

PACKED_BY = "wessl"
_LABELS = ("label", "cls", "class")
Label = int | str


@dataclass
class Scanned:
    """The pictures of one shard: where each lies, what it is called, its label if it has one."""

    starts: "array[int]" = field(default_factory=lambda: array("q"))
    sizes: "array[int]" = field(default_factory=lambda: array("q"))
    names: Names | None = None
    labels: NDArray[Any] | None = None
    unlabelled: int = 0
    cut: bool = False
    """Whether it ends in the middle of a member."""


def scan_tar(file: BinaryIO, size: int, shard: str) -> Scanned:
    """Reads one shard of `size` bytes; what is whole in one that was cut off is used."""
    found, names, labels = Scanned(), list[bytes](), list[Label | None]()
    prefix = shard.rpartition("/")[2]
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for sample in _samples(tar, size, found):
                pictures = _pictures(sample)
                name, label = _about(tar, sample) if pictures else (None, None)
                for member in pictures:
                    given = f"{prefix}/{member.name}" if name is None else name
                    found.starts.append(member.offset_data)
                    found.sizes.append(member.size)
                    names.append(given.encode("utf-8", "surrogateescape"))
                    labels.append(label)
    except (OSError, tarfile.TarError) as error:
        raise UserError(
            f"{shard} cannot be read as a tar file ({error}); remove it, or fetch it again"
        ) from error
    found.names, found.unlabelled = Names.collect(names), labels.count(None)
    if not found.unlabelled:
        whole = all(isinstance(label, int) for label in labels)
        values = labels if whole else [str(label) for label in labels]
        found.labels = np.array(values, np.int64 if whole else np.str_)
    return found


def _samples(tar: tarfile.TarFile, size: int, found: Scanned) -> Iterator[list[tarfile.TarInfo]]:
    sample: list[tarfile.TarInfo] = []
    for member in _members(tar, found):
        if member.offset_data + member.size > size:
            found.cut = True
            break
        if sample and _key(sample[0].name) != _key(member.name):
            yield sample
            sample = []
        sample.append(member)
    if sample:
        yield sample


def _members(tar: tarfile.TarFile, found: Scanned) -> Iterator[tarfile.TarInfo]:
    while True:
        try:
            member = tar.next()
        except tarfile.ReadError:  # no header where one should be
            found.cut = True
            return
        if member is None:
            return
        tar.members.clear()  # type: ignore[attr-defined]  # else it remembers every one
        if member.isfile():
            yield member


def _key(name: str) -> tuple[str, str]:
    folder, _, file = name.rpartition("/")
    return folder, file.partition(".")[0]


def _pictures(sample: list[tarfile.TarInfo]) -> list[tarfile.TarInfo]:
    """With a picture named by its key alone, `0001.jpg`, others are about it: `0001.mask.png`."""
    pictures = [member for member in sample if member.name.lower().endswith(ENDINGS)]
    return [m for m in pictures if m.name.rpartition("/")[2].count(".") == 1] or pictures


def _about(tar: tarfile.TarFile, sample: list[tarfile.TarInfo]) -> tuple[str | None, Label | None]:
    """The name, if `wessl pack` wrote one, and the label."""
    name, label, told = None, None, None
    for member in sample:
        if not member.name.endswith((".cls", ".json")):
            continue
        content = tar.extractfile(member)
        text = b"" if content is None else content.read()
        if member.name.endswith(".cls"):
            label = _label(text.decode("utf-8", "replace").strip())
        else:
            name, told = _from_json(text)
    return name, told if label is None else label


def _from_json(text: bytes) -> tuple[str | None, Label | None]:
    try:
        told = json.loads(text)
    except ValueError:
        return None, None
    if not isinstance(told, dict):
        return None, None
    label = next((told[key] for key in _LABELS if isinstance(told.get(key), int | str)), None)
    return (told.get("name") if told.get("packed_by") == PACKED_BY else None), _label(label)


def _label(value: Label | None) -> Label | None:
    if value is None or value == "":
        return None
    return int(value) if str(value).isdigit() else str(value)


def join_labels(
    parts: list[Scanned], where: str
) -> tuple[NDArray[np.int64] | None, list[str] | None, str | None]:
    """Labels and class names, or why there are none."""
    total, missing = sum(len(p.starts) for p in parts), sum(p.unlabelled for p in parts)
    if missing or not total:
        some = f"no labels: {missing:,} of {total:,} pictures have none"
        return None, None, some if missing < total else None
    held = [part.labels for part in parts if part.labels is not None and len(part.labels)]
    if not all(labels.dtype.kind == "i" for labels in held):
        held = [labels.astype(np.str_) for labels in held]
    return *number_labels(np.concatenate(held), where), None
