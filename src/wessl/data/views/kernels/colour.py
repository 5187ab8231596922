# mypy: allow-untyped-defs, allow-incomplete-defs
"""Colour jitter and grey in one pass, after one for the mean: the twin of ``photometric``'s."""

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # without CUDA
    triton = None

_BLOCK = 1024
_PARTS = 8
"""Parts of a view whose grey is summed apart, then in a fixed order: the sum has one value."""


def colour(views: Tensor, table: Tensor) -> None:
    """Changes ``views (n, C, size, size)`` in place by ``plan``'s table."""
    n, channels, size, _ = views.shape
    area = size * size
    sums = torch.empty((n, _PARTS), device=views.device)
    _mean_kernel[(n, _PARTS)](views, sums, table, channels, area, _BLOCK)
    _colour_kernel[(n, triton.cdiv(area, _BLOCK))](
        views, sums, table, channels, area, _PARTS, _BLOCK
    )


if triton is not None:

    @triton.jit
    def _luminance(red, green, blue):
        return 0.299 * red + 0.587 * green + 0.114 * blue

    @triton.jit
    def _turn(hue, spread, low, centre, SIGN: tl.constexpr):
        """One channel of a hue in sixths of a turn, from its distance to a sector's middle."""
        share = tl.abs(hue - centre)
        share = share - 1 if SIGN else 2 - share
        return low + spread * tl.minimum(tl.maximum(share, 0.0), 1.0)

    @triton.jit
    def _jitter(red, green, blue, table, mean, BEFORE_CONTRAST: tl.constexpr):
        """The four operations in the view's own order, or only those before contrast."""
        going = True
        for slot in tl.static_range(4):
            op = tl.load(table + slot).to(tl.int32)
            amount = tl.load(table + 4 + slot)
            if BEFORE_CONTRAST:
                going = going & (op != 1)
            if going & (op == 3):
                top = tl.maximum(tl.maximum(red, green), blue)
                low = tl.minimum(tl.minimum(red, green), blue)
                spread = top - low
                scale = 1 / tl.maximum(spread, 1e-12)
                hue = tl.where(top == green, 2 + (blue - red) * scale, 4 + (red - green) * scale)
                hue = tl.where(top == red, (green - blue) * scale, hue) + 6 * amount
                hue = hue - 6 * tl.floor(hue / 6)
                red = _turn(hue, spread, low, 3.0, True)
                green = _turn(hue, spread, low, 2.0, False)
                blue = _turn(hue, spread, low, 4.0, False)
            if going & (op < 3):
                grey = _luminance(red, green, blue)
                added = tl.where(op == 1, 1 - amount, 0.0) * mean
                added += tl.where(op == 2, 1 - amount, 0.0) * grey
                red = tl.minimum(tl.maximum(amount * red + added, 0.0), 1.0)
                green = tl.minimum(tl.maximum(amount * green + added, 0.0), 1.0)
                blue = tl.minimum(tl.maximum(amount * blue + added, 0.0), 1.0)
        return red, green, blue

    @triton.jit
    def _mean_kernel(views, sums, table, CHANNELS: tl.constexpr, AREA, BLOCK: tl.constexpr):
        """Sums of the grey that contrast will meet, over parts of a view."""
        view, part, parts = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
        source = views + view.to(tl.int64) * CHANNELS * AREA
        step = 0 if CHANNELS == 1 else AREA  # one channel is read as three equal ones
        total = tl.zeros((BLOCK,), tl.float32)
        for start in range(part * BLOCK, AREA, parts * BLOCK):
            at = start + tl.arange(0, BLOCK)
            red = tl.load(source + at, mask=at < AREA, other=0.0)
            green = tl.load(source + at + step, mask=at < AREA, other=0.0)
            blue = tl.load(source + at + 2 * step, mask=at < AREA, other=0.0)
            red, green, blue = _jitter(red, green, blue, table + view * 12, 0.0, True)
            total += tl.where(at < AREA, _luminance(red, green, blue), 0.0)
        tl.store(sums + view * parts + part, tl.sum(total, 0))

    @triton.jit
    def _colour_kernel(
        views, sums, table, CHANNELS: tl.constexpr, AREA, PARTS: tl.constexpr, BLOCK: tl.constexpr
    ):
        """Jitter and grey, in place."""
        view = tl.program_id(0)
        at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        source = views + view.to(tl.int64) * CHANNELS * AREA + at
        step = 0 if CHANNELS == 1 else AREA
        mean = tl.sum(tl.load(sums + view * PARTS + tl.arange(0, PARTS)), 0) / AREA
        red = tl.load(source, mask=at < AREA, other=0.0)
        green = tl.load(source + step, mask=at < AREA, other=0.0)
        blue = tl.load(source + 2 * step, mask=at < AREA, other=0.0)
        red, green, blue = _jitter(red, green, blue, table + view * 12, mean, False)
        if tl.load(table + view * 12 + 8) != 0:
            grey = _luminance(red, green, blue)
            red, green, blue = grey, grey, grey
        tl.store(source, red, mask=at < AREA)
        if CHANNELS == 3:
            tl.store(source + step, green, mask=at < AREA)
            tl.store(source + 2 * step, blue, mask=at < AREA)
