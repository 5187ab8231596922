"""One pass over the headers of tar shards in the WebDataset layout: pictures, names and labels.

Members whose names agree up to the first dot are one sample: `0001.jpg` with its label in
`0001.cls`, or in `0001.json` under "label", "cls" or "class". Where `wessl pack` wrote the name of
the class into `.json`, that is the label: the number in `.cls` counts that pack's classes alone.
"""

import json
import tarfile
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wessl.data.decoding.decode import ENDINGS
from wessl.data.sources.names import Names
from wessl.data.sources.source import number_labels
from wessl.errors import UserError

PACKED_BY = "wessl"
HEADER = tarfile.BLOCKSIZE
"""Bytes right before a picture that tell its name and size."""
TAIL = 512
LONGEST = 18
"""Digits that a label may have and still be a number of 64 bits; longer ones are words."""
_LABELS = ("label", "cls", "class")
Label = int | str


@dataclass
class Scanned:
    """The pictures of one shard: where each lies, what it is called, its label if it has one.

    `labels` index `classes`, which are sorted, or are the shard's own numbers if that is None.
    """

    starts: "array[int]" = field(default_factory=lambda: array("q"))
    sizes: "array[int]" = field(default_factory=lambda: array("q"))
    marks: "array[int]" = field(default_factory=lambda: array("I"))
    names: Names | None = None
    labels: NDArray[np.int64] | None = None
    classes: list[str] | None = None
    packed: bool = False
    """Whether `wessl pack` wrote the classes' names."""
    unlabelled: int = 0
    cut: bool = False
    """Whether it is damaged, or ends without a tar file's end."""


class _Piece(NamedTuple):
    """A member of a sample, and its `mark` if it is a picture."""

    info: tarfile.TarInfo
    mark: int


def mark(header: bytes | memoryview, picture: bytes | memoryview) -> int:
    """What tells a picture from any other that may lie at its place after a shard was replaced.

    The end of a picture and not its beginning, which many JPEGs have in common.
    """
    return zlib.crc32(picture[-TAIL:], zlib.crc32(header))


def scan_tar(file: BinaryIO, size: int, shard: str) -> Scanned:
    """Reads one shard of `size` bytes; of one that is damaged, what is whole before that."""
    found, names, labels = Scanned(), list[bytes](), list[Label | None]()
    prefix = shard.rpartition("/")[2]
    try:
        with tarfile.open(fileobj=file, mode="r:") as tar:
            for sample in _samples(tar, size, found):
                pictures = _pictures(sample)
                name, label = _about(tar, sample, found) if pictures else (None, None)
                for member, seen in pictures:
                    given = f"{prefix}/{member.name}" if name is None else name
                    found.starts.append(member.offset_data)
                    found.sizes.append(member.size)
                    found.marks.append(seen)
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
        kind = np.int64 if whole else np.str_
        found.labels, found.classes = number_labels(np.array(values, kind), shard)
    return found


def _samples(tar: tarfile.TarFile, size: int, found: Scanned) -> Iterator[list[_Piece]]:
    sample: list[_Piece] = []
    for member in _members(tar, size, found):
        if sample and _key(sample[0].info.name) != _key(member.name):
            yield sample
            sample = []
        if member.offset_data + member.size > size:
            found.cut = True
            break
        sample.append(_Piece(member, _mark_of(tar, member)))
    # Of one that is cut we do not know what is missing: perhaps the last sample's label.
    if sample and not found.cut:
        yield sample


def _members(tar: tarfile.TarFile, size: int, found: Scanned) -> Iterator[tarfile.TarInfo]:
    while True:
        try:
            member = tar.next()
        except tarfile.ReadError:  # no header where one should be
            found.cut = True
            return
        if member is None:
            found.cut = not _ends_here(tar, size)
            return
        tar.members.clear()  # type: ignore[attr-defined]  # else it remembers every one
        if member.isfile():
            yield member


def _ends_here(tar: tarfile.TarFile, size: int) -> bool:
    """Whether zeros mark the end; tarfile takes any header that is cut or broken for one.

    More zeros than writers fill up with are a hole, as a download that broke off may leave.
    """
    assert tar.fileobj is not None
    tar.fileobj.seek(tar.offset)
    block = tar.fileobj.read(tarfile.BLOCKSIZE)
    whole = len(block) == tarfile.BLOCKSIZE and not any(block)
    return whole and size - tar.offset <= tarfile.RECORDSIZE + tarfile.BLOCKSIZE


def _mark_of(tar: tarfile.TarFile, member: tarfile.TarInfo) -> int:
    # Taken before the next header is read: who reads a URL only ever goes forwards.
    if not member.name.lower().endswith(ENDINGS):
        return 0
    assert tar.fileobj is not None
    tar.fileobj.seek(member.offset_data - HEADER)
    header = tar.fileobj.read(HEADER)
    tail = min(TAIL, member.size)
    tar.fileobj.seek(member.offset_data + member.size - tail)
    return mark(header, tar.fileobj.read(tail))


def _key(name: str) -> tuple[str, str]:
    folder, _, file = name.rpartition("/")
    return folder, file.partition(".")[0]


def _pictures(sample: list[_Piece]) -> list[_Piece]:
    """With a picture named by its key alone, `0001.jpg`, others are about it: `0001.mask.png`."""
    pictures = [piece for piece in sample if piece.info.name.lower().endswith(ENDINGS)]
    return [p for p in pictures if p.info.name.rpartition("/")[2].count(".") == 1] or pictures


def _about(
    tar: tarfile.TarFile, sample: list[_Piece], found: Scanned
) -> tuple[str | None, Label | None]:
    """The name, if `wessl pack` wrote one, and the label."""
    label, told = None, _Told()
    for member, _ in sample:
        if not member.name.endswith((".cls", ".json")):
            continue
        content = tar.extractfile(member)
        text = b"" if content is None else content.read()
        if member.name.endswith(".cls"):
            label = _label(text.decode("utf-8", "replace").strip())
        else:
            told = _from_json(text)
    found.packed = found.packed or told.packed
    return told.name, told.label if label is None or told.packed else label


class _Told(NamedTuple):
    """What a `.json` member tells; `packed` if its label is a name that `wessl pack` wrote."""

    name: str | None = None
    label: Label | None = None
    packed: bool = False


def _from_json(text: bytes) -> _Told:
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return _Told()
    if not isinstance(told, dict):
        return _Told()
    if told.get("packed_by") == PACKED_BY:
        name, label = (told[k] if isinstance(told.get(k), str) else None for k in ("name", "class"))
        return _Told(name, label, label is not None)
    label = next((told[key] for key in _LABELS if isinstance(told.get(key), int | str)), None)
    return _Told(None, _label(label))


def _label(value: Label | None) -> Label | None:
    if value is None or value == "":
        return None
    text = str(value)
    return int(text) if text.isascii() and text.isdigit() and len(text) <= LONGEST else text
