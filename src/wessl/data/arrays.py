"""Pictures that are arrays already, (n, h, w, channels) uint8: an .npz file, or built-in digits."""

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wessl.data.decode import Pixels
from wessl.errors import UserError

_DIGITS_TEST = 500


def read_npz(path: Path) -> tuple[Pixels, NDArray[Any] | None]:
    """The arrays `images` and, if there is one, `labels` of a file."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            images = arrays["images"]
            labels = arrays["labels"] if "labels" in arrays.files else None
    except KeyError:
        raise UserError(f"{path} has no array named `images`") from None
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
