"""Features as files for others: .npz, .npy with names beside it, .parquet.

Each is written beside its name and moved there when it is whole, features in chunks.
"""

import contextlib
import csv
import os
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from wessl.errors import Failure, UserError
from wessl.export.embed import Embedded
from wessl.export.out import import_arrow
from wessl.export.parts import write_header
from wessl.files import write_whole

ROWS = 8192
"""Of features held at once."""


@dataclass(frozen=True)
class Near:
    """The nearest other rows of each row, `(n, k)`, and their cosines."""

    index: NDArray[np.int64]
    similarity: NDArray[np.float32]


@contextlib.contextmanager
def writable(where: str, kept: str = "") -> Iterator[None]:
    """Turns a full disk, and whatever else keeps a file from being written, into words."""
    try:
        yield
    except OSError as error:
        raise Failure(f"{where}: cannot be written ({error.strerror or error}){kept}") from error


def beside(out: Path, what: str) -> Path:
    return out.with_name(f"{out.name}.{what}")


def write_features(out: Path, found: Embedded, near: Near | None = None) -> list[Path]:
    """The file asked for and those beside it, all of them; what is asked for comes last."""
    ending = out.suffix.lower()
    files = list(_write_skipped(beside(out, "skipped.txt"), found))
    more: dict[str, NDArray[Any]] = {}
    if near is not None:
        more = dict[str, NDArray[Any]](neighbours=near.index, similarities=near.similarity)
    if ending == ".npy":
        files.append(beside(out, "names.txt"))
        _write_lines(files[-1], _one_line_each(found, out))
        if more:
            files.append(beside(out, "neighbours.npz"))
            write_whole(files[-1], lambda temporary: _npz(temporary, more))
        write_whole(out, lambda temporary: _npy(temporary, found))
    elif ending == ".npz":
        write_whole(out, lambda temporary: _npz(temporary, more, found))
    else:
        write_whole(out, lambda temporary: _parquet(temporary, found, more))
    return [*files, out]


def write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    def write(temporary: Path) -> None:
        # A file's name need not be valid text; its bytes come out as they went in.
        with temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(header)
            writer.writerows(rows)

    write_whole(path, write)


def _write_skipped(path: Path, found: Embedded) -> Iterator[Path]:
    if found.skipped:
        _write_lines(path, (f"{name}\t{' '.join(why.split())}" for name, why in found.skipped))
        yield path


def _one_line_each(found: Embedded, out: Path) -> Iterator[str]:
    for name in found.names():
        if "\n" in name or "\r" in name:
            raise UserError(f"-o {out}: {name!r} does not fit on a line; write an .npz instead")
        yield name


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("w", encoding="utf-8", errors="surrogateescape") as file:
            file.writelines(f"{line}\n" for line in lines)

    write_whole(path, write)


def _chunks(found: Embedded) -> Iterator[slice]:
    return (slice(at, at + ROWS) for at in range(0, len(found), ROWS))


def _put_features(file: IO[bytes], found: Embedded) -> None:
    write_header(file, found.features.shape, found.features.dtype)
    for some in _chunks(found):
        file.write(found.features[some].tobytes())


def _npy(path: Path, found: Embedded) -> None:
    with path.open("wb") as file:
        _put_features(file, found)


def _npz(path: Path, arrays: dict[str, NDArray[Any]], found: Embedded | None = None) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        if found is not None:
            with archive.open("features.npy", "w", force_zip64=True) as member:
                _put_features(member, found)
            with archive.open("paths.npy", "w", force_zip64=True) as member:
                kind = np.dtype(("U", max(len(name) for name in found.names())))
                write_header(member, (len(found),), kind)
                for some in _chunks(found):
                    rows = range(*some.indices(len(found)))
                    member.write(np.array([found.name(row) for row in rows], kind).tobytes())
            arrays = arrays | dict(data=np.array(found.source.location))
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def _parquet(path: Path, found: Embedded, more: dict[str, NDArray[Any]]) -> None:
    arrow, parquet = import_arrow()
    lists = {"features": found.features} | more
    fields = [("path", arrow.string())]
    for name, array in lists.items():
        fields.append((name, arrow.list_(arrow.from_numpy_dtype(array.dtype), array.shape[1])))
    schema = arrow.schema(fields, metadata={"data": os.fsencode(found.source.location)})
    with parquet.ParquetWriter(path, schema) as writer:
        for some in _chunks(found):
            rows = range(*some.indices(len(found)))
            # Parquet's strings are UTF-8, which a file's name need not be.
            names = [os.fsencode(found.name(row)).decode("utf-8", "replace") for row in rows]
            columns = [
                arrow.FixedSizeListArray.from_arrays(arrow.array(x[some].ravel()), x.shape[1])
                for x in lists.values()
            ]
            writer.write_table(arrow.table([arrow.array(names), *columns], schema))
