# mypy: allow-untyped-defs, allow-incomplete-defs
"""All that is drawn for a view, by one kernel: its window and its changes of colour."""

import math

import torch
from torch import Tensor

from wessl.data.views.config import Crop

try:
    import triton
    import triton.language as tl
except ImportError:  # without CUDA
    triton = None

AVAILABLE: bool = triton is not None

_BLOCK = 32

Keys = tuple[int, int]
"""``draws.key`` of the window and of the colours."""


def plan(
    heights: Tensor, widths: Tensor, indices: Tensor, keys: Keys, crop: Crop, channels: int
) -> tuple[Tensor, Tensor]:
    """All that is drawn for the ``b count`` views, a picture's next to each other.

    ``(n, 8)`` float64, the four numbers of ``resample.Axis`` for rows and for columns; ``(n, 12)``
    float32, which operation is in each of the jitter's four places (4: none), their amounts,
    whether grey, the blur's sigma, whether solarised, whether mirrored.
    """
    n, colour = len(indices) * crop.count, crop.photometric
    windows = torch.empty((n, 8), dtype=torch.float64, device=indices.device)
    table = torch.empty((n, 12), device=indices.device)
    of_colour = 1.0 if channels == 3 else 0.0
    _plan_kernel[(triton.cdiv(n, _BLOCK),)](
        windows, table, heights.contiguous(), widths.contiguous(), indices.contiguous(), *keys, n,
        crop.count, crop.size, *crop.area, *crop.aspect, *map(math.log, crop.aspect), crop.flip,
        colour.jitter, colour.brightness, colour.contrast, colour.saturation * of_colour,
        colour.hue * of_colour, colour.grey * of_colour, colour.blur, *colour.blur_sigma,
        colour.solarise, _BLOCK,
        num_warps=1,
    )  # fmt: skip
    return windows, table


if triton is not None:

    @triton.jit
    def _mix(x):
        """``draws._mix``: SplitMix64's finaliser on int64, its shifts made unsigned by masks."""
        x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
        x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
        return x ^ ((x >> 31) & 0x1FFFFFFFF)

    @triton.jit
    def _start(index, key):
        return _mix(index * -7046029254386353131 + key)

    @triton.jit
    def _uniform(start, column):
        """Column ``column`` of ``draws.uniform``."""
        bits = _mix(start + (column + 1).to(tl.int64) * -7046029254386353131)
        return ((bits >> 40) & 0xFFFFFF).to(tl.float32) * 5.9604644775390625e-08

    @triton.jit
    def _round(x):
        """To the nearest whole number; halves to the even one, as torch does."""
        up = tl.floor(x + 0.5)
        return tl.where((up - x == 0.5) & (up != 2 * tl.floor(up / 2)), up - 1, up)

    @triton.jit
    def _amount(draw, STRENGTH: tl.constexpr):
        low: tl.constexpr = 1 - STRENGTH if STRENGTH < 1 else 0.0
        return low + (1 + STRENGTH - low) * draw

    @triton.jit(do_not_specialize=["window_key", "colour_key"])
    def _plan_kernel(
        windows, table, heights, widths, indices, window_key, colour_key, n, count,
        SIZE: tl.constexpr, AREA_LOW: tl.constexpr, AREA_HIGH: tl.constexpr,
        ASPECT_LOW: tl.constexpr, ASPECT_HIGH: tl.constexpr,
        LOG_LOW: tl.constexpr, LOG_HIGH: tl.constexpr, FLIP: tl.constexpr,
        JITTER: tl.constexpr, BRIGHTNESS: tl.constexpr, CONTRAST: tl.constexpr,
        SATURATION: tl.constexpr, HUE: tl.constexpr, GREY: tl.constexpr, BLUR: tl.constexpr,
        SIGMA_LOW: tl.constexpr, SIGMA_HIGH: tl.constexpr, SOLARISE: tl.constexpr,
        BLOCK: tl.constexpr,
    ):  # fmt: skip
        """``resample.window_axes`` of windows inside, and the choices of ``photometric``."""
        view = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        mask = view < n
        picture = view // count
        index = tl.load(indices + picture, mask=mask, other=0).to(tl.int64)
        height = tl.load(heights + picture, mask=mask, other=1).to(tl.float64)
        width = tl.load(widths + picture, mask=mask, other=1).to(tl.float64)

        start, column = _start(index, window_key), (view % count) * 25
        found = view < 0
        box_height = _round(width / ASPECT_LOW)
        box_height = tl.maximum(tl.minimum(height, box_height), 1.0)
        box_width = _round(height * ASPECT_HIGH)
        box_width = tl.maximum(tl.minimum(width, box_width), 1.0)
        for attempt in range(10):  # not written out: half as long to compile
            area = _uniform(start, column + attempt).to(tl.float64)
            area = (AREA_LOW + (AREA_HIGH - AREA_LOW) * area) * (height * width)
            aspect = _uniform(start, column + 10 + attempt).to(tl.float64)
            aspect = tl.exp(LOG_LOW + (LOG_HIGH - LOG_LOW) * aspect)
            tall, wide = _round(tl.sqrt(area / aspect)), _round(tl.sqrt(area * aspect))
            fits = (tall >= 1) & (wide >= 1) & (tall <= height) & (wide <= width)
            box_height = tl.where(fits & (found == 0), tall, box_height)
            box_width = tl.where(fits & (found == 0), wide, box_width)
            found = found | fits
        left, top = width - box_width, height - box_height
        left_draw = _uniform(start, column + 20).to(tl.float64)
        top_draw = _uniform(start, column + 21).to(tl.float64)
        left = tl.floor(tl.where(found, left_draw * (left + 1), left / 2))
        top = tl.floor(tl.where(found, top_draw * (top + 1), top / 2))
        at = windows + view * 8
        tl.store(at, top, mask=mask)
        tl.store(at + 1, box_height / SIZE, mask=mask)
        tl.store(at + 2, top, mask=mask)
        tl.store(at + 3, top + box_height, mask=mask)
        tl.store(at + 4, left, mask=mask)
        tl.store(at + 5, box_width / SIZE, mask=mask)
        tl.store(at + 6, left, mask=mask)
        tl.store(at + 7, left + box_width, mask=mask)
        at = table + view * 12
        tl.store(at + 11, (_uniform(start, column + 22) < FLIP).to(tl.float32), mask=mask)

        start, column = _start(index, colour_key), (view % count) * 13
        chosen = _uniform(start, column) < JITTER
        for op in tl.static_range(4):
            key = _uniform(start, column + 1 + op)
            slot = tl.zeros((BLOCK,), tl.int32)
            for other in tl.static_range(4):
                if other != op:
                    that = _uniform(start, column + 1 + other)
                    slot += (that < key if other > op else that <= key).to(tl.int32)
            draw = _uniform(start, column + 5 + op)
            if op == 0:
                amount = _amount(draw, BRIGHTNESS)
            elif op == 1:
                amount = _amount(draw, CONTRAST)
            elif op == 2:
                amount = _amount(draw, SATURATION)
            else:
                amount = (2 * draw - 1) * HUE
            tl.store(at + slot, tl.where(chosen, op, 4).to(tl.float32), mask=mask)
            tl.store(at + 4 + slot, amount, mask=mask)
        sigma = SIGMA_LOW + (SIGMA_HIGH - SIGMA_LOW) * _uniform(start, column + 11)
        sigma = tl.where(_uniform(start, column + 10) < BLUR, sigma, 0.0)
        tl.store(at + 8, (_uniform(start, column + 9) < GREY).to(tl.float32), mask=mask)
        tl.store(at + 9, sigma, mask=mask)
        tl.store(at + 10, (_uniform(start, column + 12) < SOLARISE).to(tl.float32), mask=mask)
