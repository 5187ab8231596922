"""CIFAR-10 and CIFAR-100 as their archives hold them, without trusting their pickles."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wessl.data.decoding.decode import Pixels
from wessl.errors import UserError

_SIDE = 32
_BYTES = 3 * _SIDE * _SIDE
# A pickle may call anything its reader can import; these rebuild an array and do nothing else.
# numpy 2 moved the first to another module, so it is asked for by what an array says of itself.
_REBUILD = np.empty(0).__reduce__()[0]
_ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"): _REBUILD,
    ("numpy._core.multiarray", "_reconstruct"): _REBUILD,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}

Part = tuple[Pixels, NDArray[np.int64]]


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"asks for {module}.{name}, which no CIFAR file needs")
        return _ALLOWED[module, name]


def read_arrays(path: Path) -> dict[bytes, Any]:
    """A pickled dictionary of arrays, bytes, numbers and lists, with bytes for keys.

    Anything that would need other code to be read is refused before that code runs.
    """
    try:
        with path.open("rb") as file:
            value = _ArrayUnpickler(file, encoding="bytes").load()
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; extract the whole archive") from None
    except Exception as error:  # a damaged pickle may raise anything at all
        raise UserError(f"{path} cannot be read: {type(error).__name__}: {error}") from error
    if not isinstance(value, dict):
        raise UserError(f"{path} holds a {type(value).__name__}, not a dictionary of arrays")
    return {key.encode() if isinstance(key, str) else key: item for key, item in value.items()}


def cifar10(home: Path) -> tuple[dict[str, Part], list[str]]:
    """Pictures and labels of ``train`` and ``test``, and the classes' names."""
    if (home / "data_batch_1.bin").exists():
        files = {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]}
        parts = {part: [_binary(home / name, 1) for name in names] for part, names in files.items()}
        classes = _names(home / "batches.meta.txt")
    else:
        files = {"train": [f"data_batch_{i}" for i in range(1, 6)], "test": ["test_batch"]}
        parts = {
            part: [_pickled(home / name, b"labels") for name in names]
            for part, names in files.items()
        }
        classes = _text(read_arrays(home / "batches.meta"), b"label_names", home)
    return {part: _join(several, classes, home) for part, several in parts.items()}, classes


def cifar100(home: Path) -> tuple[dict[str, Part], list[str]]:
    """As ``cifar10``, with the 100 fine labels."""
    if (home / "train.bin").exists():
        parts = {part: _binary(home / f"{part}.bin", 2) for part in ("train", "test")}
        classes = _names(home / "fine_label_names.txt")
    else:
        parts = {part: _pickled(home / part, b"fine_labels") for part in ("train", "test")}
        classes = _text(read_arrays(home / "meta"), b"fine_label_names", home)
    return {part: _join([one], classes, home) for part, one in parts.items()}, classes


def _pickled(path: Path, labels: bytes) -> Part:
    held = read_arrays(path)
    data, numbers = held.get(b"data"), held.get(labels)
    if (
        not isinstance(data, np.ndarray)
        or not isinstance(numbers, list)
        or data.dtype != np.uint8
        or data.shape != (len(numbers), _BYTES)
        or not numbers
    ):
        raise UserError(f"{path} holds no rows of {_BYTES} bytes with `{labels.decode()}`")
    if not all(isinstance(number, int) for number in numbers):
        raise UserError(f"{path}: `{labels.decode()}` must be whole numbers")
    return _pictures(data), np.array(numbers, np.int64)


def _binary(path: Path, label_bytes: int) -> Part:
    """Rows of the label's bytes, the last of which counts, and the picture's."""
    try:
        blob = np.fromfile(path, np.uint8)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; extract the whole archive") from None
    if not len(blob) or len(blob) % (label_bytes + _BYTES):
        raise UserError(f"{path} holds {len(blob)} bytes, no multiple of {label_bytes + _BYTES}")
    rows = blob.reshape(-1, label_bytes + _BYTES)
    return _pictures(rows[:, label_bytes:]), rows[:, label_bytes - 1].astype(np.int64)


def _pictures(rows: NDArray[np.uint8]) -> Pixels:
    return np.ascontiguousarray(rows.reshape(-1, 3, _SIDE, _SIDE).transpose(0, 2, 3, 1))


def _join(parts: list[Part], classes: list[str], home: Path) -> Part:
    labels = np.concatenate([labels for _, labels in parts])
    if labels.min() < 0 or labels.max() >= len(classes):
        wrong = int(labels.max() if labels.max() >= len(classes) else labels.min())
        raise UserError(f"{home}: label {wrong}, where {len(classes)} classes are named")
    return np.concatenate([pictures for pictures, _ in parts]), labels


def _text(held: dict[bytes, Any], key: bytes, home: Path) -> list[str]:
    names = held.get(key)
    if not isinstance(names, list) or not all(isinstance(name, (bytes, str)) for name in names):
        raise UserError(f"{home}: its meta file has no list `{key.decode()}`")
    return [name.decode() if isinstance(name, bytes) else name for name in names]


def _names(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror})") from error
