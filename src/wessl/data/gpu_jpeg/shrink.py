"""Decoded JPEGs of one size turned, shrunk and laid out together, on their device.

The steps and sizes are those of `decode` on the CPU, in floats: a first reduction by 2, 4 or 8 that
averages blocks, the middle of a panorama, the antialiased bicubic filter.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from wessl.data.decoding.pixels import shrunk
from wessl.data.gpu_jpeg.file import Jpeg, upright_size

STEEPEST = 64
"""Times smaller at most: the filter on the GPU has no room for more than eight after the blocks."""
FLOATS = 1 << 23
"""Pixels that are floats at a time, a hundred megabytes."""
_TURNS: dict[int, tuple[bool, tuple[int, ...]]] = {  # EXIF: transposed or not, then flipped axes
    2: (False, (3,)),
    3: (False, (2, 3)),
    4: (False, (2,)),
    5: (True, ()),
    6: (True, (3,)),
    7: (True, (2, 3)),
    8: (True, (2,)),
}


class Way(NamedTuple):
    """What is to be done with all pictures of one size and orientation."""

    stored: tuple[int, int]
    orientation: int
    block: int
    kept: tuple[int, int, int, int]
    """Top, left, height and width of the middle, of what the blocks leave."""
    size: tuple[int, int]


def way_of(jpeg: Jpeg, short_side: int | None) -> Way | None:
    """None where it would become so small that the GPU does not do it."""
    return _way(jpeg.height, jpeg.width, jpeg.orientation, short_side)


@lru_cache(4096)
def _way(height: int, width: int, orientation: int, short_side: int | None) -> Way | None:
    tall, wide = upright_size(Jpeg(b"", height, width, orientation))
    block = 1
    if short_side is not None:
        if min(tall, wide) > STEEPEST * short_side:
            return None
        times = min(tall, wide) // (2 * short_side)
        block = next((block for block in (8, 4, 2) if times >= block), 1)
    kept, size = shrunk(-(-tall // block), -(-wide // block), short_side)
    return Way((height, width), orientation, block, kept, size)


def shrink_into(out_nhwc: Tensor, decoded: list[Tensor], way: Way) -> None:
    """Pictures (3, height, width) of one way, into uint8 (n, height, width, 3)."""
    at_once = max(1, FLOATS // (way.stored[0] * way.stored[1]))
    for first in range(0, len(decoded), at_once):
        some = decoded[first : first + at_once]
        pixels = _shrunk(torch.stack(some) if len(some) > 1 else some[0][None], way)
        out_nhwc[first : first + at_once].copy_(pixels.permute(0, 2, 3, 1))


def _shrunk(pixels: Tensor, way: Way) -> Tensor:
    transposed, flipped = _TURNS.get(way.orientation, (False, ()))
    pixels = pixels.mT if transposed else pixels
    pixels = pixels.flip(flipped) if flipped else pixels
    if way.block > 1:
        # Blocks that reach over an edge are averages of what they hold.
        pixels = F.avg_pool2d(pixels.float(), way.block, ceil_mode=True, count_include_pad=False)
    top, left, height, width = way.kept
    pixels = pixels[:, :, top : top + height, left : left + width]
    if pixels.shape[2:] == way.size:
        return pixels
    small = F.interpolate(pixels.float(), way.size, mode="bicubic", antialias=True)
    return small.round_().clamp_(0, 255)
