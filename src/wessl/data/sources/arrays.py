"""Pictures that are arrays already, (n, h, w, channels) uint8: an .npz file, or built-in digits."""

import zipfile
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wessl.data.decoding.decode import Pixels, shrink, with_channels
from wessl.data.forms import FORMS
from wessl.data.sources.source import Source, digest, number_labels
from wessl.errors import UserError

_DIGITS_TEST = 500


class ArraySource(Source):
    """Pictures that are arrays already, (n, h, w, channels) uint8."""

    parallel = False  # sending the arrays to a process costs more than reading them

    def __init__(
        self,
        location: str,
        images: Pixels,
        labels: NDArray[Any] | None,
        channels: int | None = None,
    ):
        self.location, self.images = location, images
        if labels is not None:
            self.labels, self.classes = number_labels(labels, location)
        self._channels = channels or images.shape[3]
        if self._channels != images.shape[3] and {self._channels, images.shape[3]} != {1, 3}:
            raise UserError(
                f"{location} has {images.shape[3]} channels; they cannot become {self._channels}"
            )

    def __len__(self) -> int:
        return len(self.images)

    def name(self, index: int) -> str:
        return f"{self.location}[{range(len(self))[index]}]"

    def read(self, index: int, short_side: int | None = None) -> Pixels:
        return shrink(with_channels(self.images[index], self._channels), short_side)

    @property
    def channels(self) -> int:
        return self._channels

    @cached_property
    def fingerprint(self) -> str:
        labels = np.zeros(0) if self.labels is None else self.labels
        return digest(np.array(self.images.shape), self.images, labels, str(self.classes).encode())


def read_npz(path: Path) -> tuple[Pixels, NDArray[Any] | None]:
    """The arrays `images` and, if there is one, `labels` of a file."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            if "images" not in arrays.files:
                held = ", ".join(f"`{name}`" for name in arrays.files[:20]) or "none at all"
                raise UserError(
                    f"{path} has no array named `images`; its arrays are {held}: save the pictures "
                    "as `images` (and `labels`)"
                )
            images = arrays["images"]
            labels = arrays["labels"] if "labels" in arrays.files else None
    except UserError:
        raise
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    if images.dtype != np.uint8 or images.ndim not in (3, 4) or 0 in images.shape:
        raise UserError(
            f"{path}: `images` must be uint8 of shape (n, h, w) or (n, h, w, channels); "
            f"found {images.dtype} of shape {images.shape}"
        )
    if labels is not None and labels.shape != images.shape[:1]:
        raise UserError(f"{path}: {len(images)} images but labels of shape {labels.shape}")
    return images if images.ndim == 4 else images[..., None], labels


def digits(part: str) -> tuple[Pixels, NDArray[np.int64]]:
    """Scikit-learn's 8 x 8 digits: all (""), "/train" or "/test".

    Test holds 500, each class in proportion, and never changes.
    """
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[..., None]
    labels = bunch.target.astype(np.int64)
    # Spread over a random order sorted by class, every 1797/500th picture is a stratified sample.
    shuffled = np.random.RandomState(2023).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    test = np.zeros(len(labels), bool)
    test[by_class[np.arange(_DIGITS_TEST) * len(labels) // _DIGITS_TEST]] = True
    keep = {"": np.ones(len(labels), bool), "/train": ~test, "/test": test}[part]
    return images[keep], labels[keep]


def open_digits(name: str, channels: int | None) -> ArraySource:
    part = name.removeprefix("builtin://digits")
    if not name.startswith("builtin://digits") or part not in ("", "/train", "/test"):
        raise UserError(f"{name}: unknown kind of data; known are {FORMS}")
    source = ArraySource(name, *digits(part), channels)
    source.classes = [str(digit) for digit in range(10)]
    return source
