"""Pillow's pixels of a JPEG in less time, where the package simplejpeg is installed.

Both ask libjpeg-turbo. Pillow is given the file in pieces, keeps four bytes a pixel and packs them
into three at last; simplejpeg decodes a whole file into the array that is wanted.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile

Decoder = Callable[..., NDArray[np.uint8]]


@cache
def decoder() -> Decoder | None:
    """None where the package is not installed."""
    try:
        from simplejpeg import decode_jpeg
    except ImportError:
        return None
    found: Decoder = decode_jpeg
    return found


def pixels_of_jpeg(image: Image.Image) -> NDArray[np.uint8] | None:
    """Of an opened colour JPEG, in the size that it was told to have; None for any other file.

    A damaged one is any other too: Pillow has the words for it.
    """
    plain = image.format == "JPEG" and image.mode == "RGB"
    if not plain or not isinstance(image, ImageFile.ImageFile) or image.fp is None:
        return None
    if (decode_jpeg := decoder()) is None:
        return None
    position = image.fp.tell()
    image.fp.seek(0)
    file = image.fp.read()
    image.fp.seek(position)
    width, height = image.size
    try:
        found = decode_jpeg(file, "RGB", min_height=height, min_width=width)
    except ValueError:
        return None
    return found if found.shape[:2] == (height, width) else None
