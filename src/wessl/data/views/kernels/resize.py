# mypy: allow-untyped-defs, allow-incomplete-defs
"""Crop, mirror and antialiased resize of uint8 pictures: the twin of ``resample``'s matrices."""

import torch
from torch import Tensor

from wessl.data.views.config import Crop

try:
    import triton
    import triton.language as tl
except ImportError:  # without CUDA
    triton = None

_BLOCK = 512
_TILE = 32


def resize(pixels: Tensor, windows: Tensor, table: Tensor, crop: Crop, out: Tensor) -> None:
    """``pixels (b, H, W, C)`` by their windows to ``out (b count, C, size, size)`` in [0, 1]."""
    views, channels, size, _ = out.shape
    _, height, width, _ = pixels.shape
    narrow = torch.empty((views, channels, height, size), device=pixels.device)
    cubic = crop.interpolation == "bicubic"
    _columns_kernel[(views, triton.cdiv(height * size, _BLOCK))](
        pixels.contiguous(), narrow, windows, table, crop.count, height, width, channels, size,
        cubic, _BLOCK,
    )  # fmt: skip
    tiles = triton.cdiv(size, _TILE)
    _rows_kernel[(views * channels, tiles, tiles)](
        narrow, out, windows, height, channels, size, cubic, _TILE
    )


if triton is not None:

    @triton.jit
    def _filter(x, CUBIC: tl.constexpr):
        """``resample``'s filters at distance x."""
        x = tl.abs(x)
        if CUBIC:
            near = (1.5 * x - 2.5) * x * x + 1
            far = ((-0.5 * x + 2.5) * x - 4) * x + 2
            weight = tl.where(x < 1, near, tl.where(x < 2, far, 0.0))
        else:
            weight = tl.maximum(1 - x, 0.0)
        return weight

    @triton.jit
    def _taps(axis, place, CUBIC: tl.constexpr):
        """First source pixel, its distance from the centre, the filter's width, how many taps."""
        start, step = tl.load(axis), tl.load(axis + 1)
        width = tl.maximum(step, 1.0)
        support = 2.0 if CUBIC else 1.0
        # In float64, so that pictures of any size keep sub-pixel accuracy.
        centre = start + (place + 0.5) * step
        first = tl.floor(centre - support * width + 0.5)
        offset = (first + 0.5 - centre).to(tl.float32)
        taps = 2 * tl.ceil(support * width).to(tl.int32) + 1
        return first.to(tl.int32), offset, width.to(tl.float32), taps

    @triton.jit
    def _columns_kernel(
        pixels, narrow, windows, table, count, HEIGHT, WIDTH,
        CHANNELS: tl.constexpr, SIZE: tl.constexpr, CUBIC: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        """Each row of a window shortened to the view's width, mirrored where asked."""
        view = tl.program_id(0)
        axis = windows + view * 8 + 4
        top = tl.load(windows + view * 8 + 2).to(tl.int32)
        rows = tl.load(windows + view * 8 + 3).to(tl.int32) - top
        # One dimension, so that neighbouring threads take neighbouring columns.
        at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
        if tl.program_id(1) * BLOCK < rows * SIZE:
            row, column = at // SIZE, at % SIZE
            place = tl.where(tl.load(table + view * 12 + 11) != 0, SIZE - 1 - column, column)
            first, offset, width, taps = _taps(axis, place.to(tl.float64), CUBIC)
            low, high = tl.load(axis + 2).to(tl.int32), tl.load(axis + 3).to(tl.int32)
            source = pixels + (view // count).to(tl.int64) * HEIGHT * WIDTH * CHANNELS
            source += (top + row) * WIDTH * CHANNELS
            total = tl.zeros((BLOCK,), tl.float32)
            red = tl.zeros((BLOCK,), tl.float32)
            green = tl.zeros((BLOCK,), tl.float32)
            blue = tl.zeros((BLOCK,), tl.float32)
            for tap in range(taps):
                x = first + tap
                mask = (x >= low) & (x < high) & (row < rows)
                weight = tl.where(mask, _filter((offset + tap) / width, CUBIC), 0.0)
                total += weight
                near = source + x * CHANNELS
                red += weight * tl.load(near, mask=mask, other=0).to(tl.float32)
                if CHANNELS == 3:
                    green += weight * tl.load(near + 1, mask=mask, other=0).to(tl.float32)
                    blue += weight * tl.load(near + 2, mask=mask, other=0).to(tl.float32)
            mask = row < rows
            scale = 1 / (255.0 * tl.where(mask, total, 1.0))
            stored = narrow + view.to(tl.int64) * CHANNELS * HEIGHT * SIZE + at
            tl.store(stored, red * scale, mask=mask)
            if CHANNELS == 3:
                tl.store(stored + HEIGHT * SIZE, green * scale, mask=mask)
                tl.store(stored + 2 * HEIGHT * SIZE, blue * scale, mask=mask)

    @triton.jit
    def _rows_kernel(
        narrow, views, windows, HEIGHT, CHANNELS: tl.constexpr, SIZE: tl.constexpr,
        CUBIC: tl.constexpr, TILE: tl.constexpr,
    ):  # fmt: skip
        """Each column of the shortened window, likewise; clamped to [0, 1]."""
        plane = tl.program_id(0)
        axis = windows + plane // CHANNELS * 8
        row = tl.program_id(1) * TILE + tl.arange(0, TILE)
        column = tl.program_id(2) * TILE + tl.arange(0, TILE)
        first, offset, width, taps = _taps(axis, row.to(tl.float64), CUBIC)
        low, high = tl.load(axis + 2).to(tl.int32), tl.load(axis + 3).to(tl.int32)
        source = narrow + plane.to(tl.int64) * HEIGHT * SIZE + column[None, :]
        total = tl.zeros((TILE,), tl.float32)
        value = tl.zeros((TILE, TILE), tl.float32)
        for tap in range(taps):
            y = first + tap
            inside = (y >= low) & (y < high) & (row < SIZE)
            weight = tl.where(inside, _filter((offset + tap) / width, CUBIC), 0.0)
            mask = inside[:, None] & (column < SIZE)[None, :]
            value += weight[:, None] * tl.load(
                source + ((y - low) * SIZE)[:, None], mask=mask, other=0.0
            )
            total += weight
        value = value / tl.where(row < SIZE, total, 1.0)[:, None]
        value = tl.minimum(tl.maximum(value, 0.0), 1.0)
        at = plane.to(tl.int64) * SIZE * SIZE + row[:, None] * SIZE + column[None, :]
        tl.store(views + at, value, mask=(row < SIZE)[:, None] & (column < SIZE)[None, :])
