# mypy: allow-untyped-defs, allow-incomplete-defs
"""Gaussian blur, solarise and normalisation: a view's last two passes."""

import math

from torch import Tensor

from wessl.data.views.config import Crop

try:
    import triton
    import triton.language as tl
except ImportError:  # without CUDA
    triton = None

_BLOCK = 1024
_TILE = 32


def blur_and_finish(
    both: Tensor, table: Tensor, crop: Crop, scale: Tensor, shift: Tensor, out: Tensor
) -> None:
    """Views ``both[0] (n, C, size, size)`` into ``out (count, b, C, size, size)``, any strides.

    ``both[1]`` is room for the blur along the rows.
    """
    _, views, channels, size, _ = both.shape
    planes, tiles = views * channels, triton.cdiv(size, _TILE)
    radius = math.ceil(4 * crop.photometric.blur_sigma[1])
    if crop.photometric.blur > 0:
        _blur_kernel[(planes, triton.cdiv(size * size, _BLOCK))](
            both[0], both[1], table, channels, size, radius, _BLOCK
        )
    _finish_kernel[(planes, tiles, tiles)](
        both, out, table, scale, shift, crop.count, *out.stride(), both.stride(0), channels, size,
        radius, _TILE,
    )  # fmt: skip


if triton is not None:

    @triton.jit
    def _reach(sigma, RADIUS: tl.constexpr):
        """Taps on either side that count: beyond 6.5 sigmas a weight is under 1e-9."""
        return tl.minimum(tl.ceil(6.5 * sigma).to(tl.int32), RADIUS)

    @triton.jit
    def _blur_kernel(
        views, blurred, table, CHANNELS: tl.constexpr, SIZE: tl.constexpr,
        RADIUS: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        """Gaussian blur along the rows of those views that have one; beyond the edge, the edge."""
        plane = tl.program_id(0)
        sigma = tl.load(table + plane // CHANNELS * 12 + 9)
        if sigma > 0:
            at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
            column, mask = at % SIZE, at < SIZE * SIZE
            source = views + plane.to(tl.int64) * SIZE * SIZE + at - column
            value = tl.zeros((BLOCK,), tl.float32)
            total = 0.0
            reach = _reach(sigma, RADIUS)
            for tap in range(-reach, reach + 1):
                weight = tl.exp(-0.5 * (tap / sigma) * (tap / sigma))
                x = tl.minimum(tl.maximum(column + tap, 0), SIZE - 1)
                value += weight * tl.load(source + x, mask=mask, other=0.0)
                total += weight
            stored = blurred + plane.to(tl.int64) * SIZE * SIZE + at
            tl.store(stored, value / total, mask=mask)

    @triton.jit
    def _finish_kernel(
        both, out, table, scale, shift, count,
        stride_view, stride_picture, stride_channel, stride_row, stride_column,
        stride_blurred, CHANNELS: tl.constexpr, SIZE: tl.constexpr,
        RADIUS: tl.constexpr, TILE: tl.constexpr,
    ):  # fmt: skip
        """The blur along the columns, solarise, normalise, and the view's place in the batch."""
        plane = tl.program_id(0)
        view, channel = plane // CHANNELS, plane % CHANNELS
        sigma = tl.load(table + view * 12 + 9)
        row = tl.program_id(1) * TILE + tl.arange(0, TILE)
        column = tl.program_id(2) * TILE + tl.arange(0, TILE)
        mask = (row < SIZE)[:, None] & (column < SIZE)[None, :]
        source = both + tl.where(sigma > 0, stride_blurred, 0)
        source += plane.to(tl.int64) * SIZE * SIZE + column[None, :]
        value = tl.zeros((TILE, TILE), tl.float32)
        total = 0.0
        reach = _reach(sigma, RADIUS)
        for tap in range(-reach, reach + 1):
            distance = tap / tl.maximum(sigma, 1e-3)
            weight = tl.exp(-0.5 * distance * distance)
            y = tl.minimum(tl.maximum(row + tap, 0), SIZE - 1)
            value += weight * tl.load(source + (y * SIZE)[:, None], mask=mask, other=0.0)
            total += weight
        value = value / total
        if tl.load(table + view * 12 + 10) != 0:
            value = tl.where(value >= 128 / 255, 1 - value, value)
        value = value * tl.load(scale + channel) + tl.load(shift + channel)
        at = (view % count).to(tl.int64) * stride_view + channel * stride_channel
        at += (view // count).to(tl.int64) * stride_picture
        at = at + row[:, None] * stride_row + column[None, :] * stride_column
        tl.store(out + at, value, mask=mask)
