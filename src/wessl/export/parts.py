"""Files of arrays that are either whole or not there, and a folder for one process at a time."""

import contextlib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from wessl.errors import UserError
from wessl.export.stream import Part
from wessl.files import try_lock

LISTED = ("numbers", "bad", "reasons")
DAMAGED = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)


def save(path: Path, arrays: dict[str, Any]) -> None:
    with path.open("wb") as file:  # given a name, numpy would add an ending of its own
        np.savez(file, allow_pickle=False, **arrays)


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    with np.load(path) as file:  # the archive has a checksum for each array
        return {name: file[name] for name in names}


def whole(path: Path) -> bool:
    try:
        return len(read_arrays(path, Part._fields)) > 0
    except DAMAGED:
        return False


def write_header(file: IO[bytes], shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """What an .npy file begins with; the array's bytes follow."""
    described = np.lib.format.dtype_to_descr(dtype)
    header = dict(descr=described, fortran_order=False, shape=shape)
    np.lib.format.write_array_header_1_0(file, header)


@contextlib.contextmanager
def alone(home: Path) -> Iterator[None]:
    """For one process at a time."""
    with (home / ".lock").open("a") as file:
        if not try_lock(file):
            raise UserError(f"{home} is being written by another process")
        yield
