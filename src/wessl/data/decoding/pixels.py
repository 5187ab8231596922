"""Decoded pictures, uint8 height x width x channels: made smaller, grey or coloured."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from wessl.data.decoding.bad_pictures import BadPicture

Pixels = NDArray[np.uint8]
MAX_ASPECT = 4


def shrink(picture: Pixels, short_side: int | None) -> Pixels:
    """Antialiased bicubic to the given short side.

    A panorama longer than 4:1 keeps its middle: batches are padded to their longest picture, and
    one such strip would multiply the memory of its whole batch.
    """
    (top, left, height, width), size = shrunk(picture.shape[0], picture.shape[1], short_side)
    middle = picture[top : top + height, left : left + width]
    return middle if (height, width) == size else _resize(middle, *size)


def shrunk(
    height: int, width: int, short_side: int | None
) -> tuple[tuple[int, int, int, int], tuple[int, int]]:
    """What is kept of a picture (top, left, height, width), and the size it is brought to.

    >>> shrunk(100, 1000, 50)
    ((0, 300, 100, 400), (50, 200))
    """
    if short_side is None:
        return (0, 0, height, width), (height, width)
    short = min(height, width)
    top, left = (max(0, side - MAX_ASPECT * short) // 2 for side in (height, width))
    height, width = (min(side, MAX_ASPECT * short) for side in (height, width))
    if short <= short_side:
        return (top, left, height, width), (height, width)
    size = tuple(max(1, round(side * short_side / short)) for side in (height, width))
    return (top, left, height, width), (size[0], size[1])


def _resize(picture: Pixels, height: int, width: int) -> Pixels:
    # Torch's is Pillow's filter in vector instructions, five times as fast; results differ by
    # rounding, in one value of 200 (more in tall strips, where Pillow goes down before it goes
    # across). Imported only here: whoever shrinks nothing needs no torch.
    import torch
    import torch.nn.functional as F

    whole = np.ascontiguousarray(picture)
    values = torch.from_numpy(whole if whole.flags.writeable else whole.copy())
    channels_last = values[None].permute(0, 3, 1, 2)  # in this order torch sees what it is
    small = F.interpolate(channels_last, (height, width), mode="bicubic", antialias=True)
    return np.ascontiguousarray(small[0].permute(1, 2, 0).numpy())


def with_channels(picture: Pixels, channels: int) -> Pixels:
    """Grey to colour or colour to grey; anything else must have the right count already."""
    found = picture.shape[2]
    if found == channels:
        return picture
    if {found, channels} == {1, 3}:
        return as_array(as_image(picture).convert("L" if channels == 1 else "RGB"))
    raise BadPicture(f"has {found} channels where {channels} are wanted")


def as_image(picture: Pixels) -> Image.Image:
    return Image.fromarray(
        np.ascontiguousarray(picture[:, :, 0] if picture.shape[2] == 1 else picture)
    )


def as_array(image: Image.Image) -> Pixels:
    return np.atleast_3d(np.asarray(image, dtype=np.uint8))
