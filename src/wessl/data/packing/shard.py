"""One tar shard in the WebDataset layout: written, read again, compared."""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from wessl.data.sources.shards.scan import PACKED_BY, Scanned, scan_tar
from wessl.errors import Failure


@dataclass(frozen=True)
class Member:
    """A picture to be written: `key` without dots, its file and ending, name and label.

    `class_name` is what the number `label` means, where it has a name.
    """

    key: str
    file: bytes
    ending: str
    name: str
    label: int | None
    class_name: str | None = None


@dataclass
class _Promise:
    """What must be found again."""

    name: bytes
    label: int | str | None
    digest: bytes


def write_shard(path: Path, members: Iterable[Member]) -> Scanned:
    """Writes a shard, reads it back from the disk, and returns what is in it.

    The bytes of every picture are compared with those that were given.
    """
    promises = []
    with open(path, "wb") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as tar:
            for member in members:
                _add(tar, member.key + member.ending, member.file)
                if member.label is not None:
                    _add(tar, f"{member.key}.cls", str(member.label).encode())
                about = dict(name=member.name, packed_by=PACKED_BY)
                if member.class_name is not None:
                    about["class"] = member.class_name
                _add(tar, f"{member.key}.json", json.dumps(about).encode())
                name = member.name.encode("utf-8", "surrogateescape")
                label = member.label if member.class_name is None else member.class_name
                promises.append(_Promise(name, label, _digest(member.file)))
        file.flush()
        os.fsync(file.fileno())
        if hasattr(os, "posix_fadvise"):  # else it is read from memory and not from the disk
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with open(path, "rb") as file:
        return _verified(file, path, promises)


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def _verified(file: BinaryIO, path: Path, promises: list[_Promise]) -> Scanned:
    found = scan_tar(file, path.stat().st_size, str(path))
    labels = None if found.labels is None else found.labels.tolist()
    if labels is not None and found.classes is not None:
        labels = [found.classes[label] for label in labels]
    ok = not found.cut and len(found.starts) == len(promises) and found.names is not None
    for i, promise in enumerate(promises if ok else ()):
        assert found.names is not None
        file.seek(found.starts[i])
        same = _digest(file.read(found.sizes[i])) == promise.digest
        named = found.names[i].encode("utf-8", "surrogateescape") == promise.name
        ok = ok and same and named and (None if labels is None else labels[i]) == promise.label
    if not ok:
        raise Failure(
            f"{path} does not hold what was written to it; the disk may be failing, and nothing of "
            "it is kept"
        )
    return found


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()
