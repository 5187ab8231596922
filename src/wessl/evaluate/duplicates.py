"""Pictures that are in the training and in the test set: they make every accuracy too good."""

import zlib

import torch
from torch import Tensor

from wessl.data.cache.cache import PictureCache

_GLANCE = 64


def common_pictures(
    train: PictureCache,
    test: PictureCache,
    train_rows: Tensor | None = None,
    test_rows: Tensor | None = None,
) -> list[tuple[int, int]]:
    """Pairs of numbers (train, test) of pictures equal in every pixel; one pair a test picture.

    Of a large training set only a few bytes of each picture are read, unless they are those of a
    test picture. Copies that were scaled or compressed again are not found.
    """
    rows = torch.arange(len(train)) if train_rows is None else train_rows
    asked = torch.arange(len(test)) if test_rows is None else test_rows
    glances = {_glance(test, j) for j in asked.tolist()}
    alike = [i for i in rows.tolist() if _glance(train, i) in glances]
    known: dict[int, list[int]] = {}
    for i in alike:
        known.setdefault(_checksum(train, i), []).append(i)
    pairs = []
    for j in asked.tolist() if alike else ():
        for i in known.get(_checksum(test, j), ()):
            if torch.equal(train.picture(i), test.picture(j)):
                pairs.append((i, j))
                break
    return pairs


def _glance(cache: PictureCache, i: int) -> tuple[int, int, bytes]:
    """The size and some bytes from the middle, where a picture's border does not reach."""
    pixels = cache.picture(i)
    middle = pixels[pixels.shape[0] // 2].flatten()
    start = max(0, (len(middle) - _GLANCE) // 2)
    return *pixels.shape[:2], middle[start : start + _GLANCE].numpy().tobytes()


def _checksum(cache: PictureCache, i: int) -> int:
    return zlib.crc32(cache.picture(i).numpy().data)
