"""Views on a CUDA device by Triton kernels: from uint8 pictures to normalised views.

``render`` is the twin of ``draws.uniform``, ``views.render`` and the normalisation together: the
same draws, windows, filters and colours, equal to float32 rounding, for the crops ``usable`` names.
The plain code holds a resize as dense matrices and passes over all views once for each elementary
operation; here weights live in registers, a filter reads only what it needs, and a view goes
through device memory five times: columns, rows, colours, and the blur's two directions. Seven
launches a kind of view also leave the host free, where the plain code's many small ones do not.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from wessl.data.views.config import Crop
from wessl.data.views.kernels import blur, colour, plan, resize


def usable(pixels: Tensor, crop: Crop) -> bool:
    """Whether ``render`` can make these views: upright windows of grey or colour on CUDA."""
    return plan.AVAILABLE and pixels.is_cuda and crop.inside and pixels.shape[3] in (1, 3)


def temporary_bytes(crop: Crop, pixels: Tensor) -> int:
    """What ``render`` takes of the device's memory for one picture."""
    _, height, _, channels = pixels.shape
    return 4 * channels * crop.count * crop.size * (height + 2 * crop.size)


Kind = tuple[plan.Keys, Crop, Tensor]
"""``keys``, ``crop`` and ``out`` of ``render``."""

_compiled: set[Crop] = set()


def render_kinds(
    pictures: tuple[Tensor, Tensor, Tensor, Tensor],
    kinds: Sequence[Kind],
    scale: Tensor,
    shift: Tensor,
) -> None:
    """``render`` of all kinds of view, of ``pictures`` as its first four arguments.

    The first time each in a thread of its own, so that Triton compiles for all of them at once.
    """

    def make(kind: Kind) -> None:
        render(*pictures, *kind[:2], scale, shift, kind[2])

    crops = {crop for _, crop, _ in kinds}
    if len(crops - _compiled) < 2:
        for kind in kinds:
            make(kind)
    else:
        stream = torch.cuda.current_stream(pictures[0].device)
        with ThreadPoolExecutor(
            len(kinds), initializer=torch.cuda.set_stream, initargs=(stream,)
        ) as threads:
            list(threads.map(make, kinds))
    _compiled.update(crops)


def render(
    pixels: Tensor,
    heights: Tensor,
    widths: Tensor,
    indices: Tensor,
    keys: plan.Keys,
    crop: Crop,
    scale: Tensor,
    shift: Tensor,
    out: Tensor,
) -> None:
    """Writes views of ``pixels (b, H, W, C)`` into ``out (count, b, C, size, size)``, any strides.

    ``indices (b,)`` are the pictures' numbers in the whole data set. A value x in [0, 1] comes out
    as ``shift + x scale``, of C numbers each.
    """
    b, _, _, channels = pixels.shape
    views, size = b * crop.count, crop.size
    with torch.cuda.device_of(pixels):  # Triton launches on the current device
        windows, table = plan.plan(heights, widths, indices, keys, crop, channels)
        # Before the blur and between its two directions; one tensor, so that a kernel can choose.
        both = torch.empty((2, views, channels, size, size), device=pixels.device)
        resize.resize(pixels, windows, table, crop, both[0])
        if crop.photometric.jitter > 0 or crop.photometric.grey > 0:
            colour.colour(both[0], table)
        blur.blur_and_finish(both, table, crop, scale, shift, out)
