"""Random views for training and fixed ones for evaluation, batched on the pictures' device.

A view is a window of the picture (``resample``), then changes of colour (``photometric``). Every
draw comes from ``draws``: view k of a picture at a step is the same in any batch. No step here
waits for the device.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from wessl.data.draws import key, uniform
from wessl.data.views import kernels, photometric, resample
from wessl.data.views.config import Crop, Interpolation, Views

_CHUNK_BYTES = {"cpu": 2**25, "other": 2**31}
"""Largest temporary: small enough for a CPU's caches, a small part of the memory elsewhere."""


class Pictures(Protocol):
    """A batch of pictures of different sizes, each in the top left corner of its frame."""

    @property
    def pixels(self) -> Tensor:
        """``(b, H, W, C)`` uint8, zero beyond each picture's own size."""

    @property
    def heights(self) -> Tensor:
        """``(b,)`` integers, at most H."""

    @property
    def widths(self) -> Tensor:
        """``(b,)`` integers, at most W."""


@torch.no_grad()
def make_views(
    batch: Pictures,
    indices: Tensor,
    views: Views,
    seed: int,
    step: int,
    mean: Sequence[float],
    std: Sequence[float],
    dtype: torch.dtype = torch.float32,
) -> list[Tensor]:
    """All views of b pictures: ``(views b, C, size, size)`` for each of ``views.tensors``.

    View-major: all pictures' view 0, then all pictures' view 1. ``indices (b,)`` are the
    pictures' numbers in the whole data set, which with ``seed`` and ``step`` fix every draw.
    Values are scaled to [0, 1], then normalised by ``mean`` and ``std``, one number per channel.

    >>> from types import SimpleNamespace
    >>> from wessl.data.views.config import dino_views
    >>> pixels, sides = torch.zeros(5, 64, 64, 3, dtype=torch.uint8), torch.full((5,), 64)
    >>> batch = SimpleNamespace(pixels=pixels, heights=sides, widths=sides)
    >>> views = dino_views(global_size=32, local_size=16, local_count=6)
    >>> mean, std = [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]
    >>> [tuple(x.shape) for x in make_views(batch, torch.arange(5), views, 0, 1, mean, std)]
    [(10, 3, 32, 32), (30, 3, 16, 16)]
    """
    pixels = batch.pixels
    indices = indices.to(pixels.device)
    scale, shift = _normalisation(mean, std, pixels)
    outputs, places = _allocate(views, pixels, dtype)
    if all(kernels.usable(pixels, crop) for crop in views.crops):
        each = max(kernels.temporary_bytes(crop, pixels) for crop in views.crops)
        for part in _chunks(pixels, each):
            picked = (pixels[part], *_sides(batch, part), indices[part])
            kinds = [
                ((key(seed, step, f"crop {k}"), key(seed, step, f"colour {k}")), crop, out[:, part])
                for k, (crop, out) in enumerate(zip(views.crops, places, strict=True))
            ]
            kernels.render_kinds(picked, kinds, scale, shift)
        return outputs
    draws = [_draw(seed, step, indices, kind, crop) for kind, crop in enumerate(views.crops)]
    for part in _chunks(pixels, max(_temporary_bytes(crop, pixels) for crop in views.crops)):
        pictures, heights, widths = _pictures(batch, part)
        for crop, (geometry, colours), place in zip(views.crops, draws, places, strict=True):
            view = render(pictures, heights, widths, geometry[part], colours[part], crop)
            view = torch.addcmul(shift, view, scale).unflatten(0, (-1, crop.count))
            place[:, part].copy_(view.permute(1, 0, 3, 2, 4))
    return outputs


def render(
    pictures: Tensor,
    heights: Tensor,
    widths: Tensor,
    geometry: Tensor,
    colours: Tensor,
    crop: Crop,
) -> Tensor:
    """``pictures (b, H, C, W)`` to ``(b count, size, C, size)`` in [0, 1]; the compile unit.

    A function of tensors and static settings alone: ``geometry (b, count, resample.DRAWS)`` and
    ``colours (b, count, photometric.DRAWS)`` are uniform numbers. Compile it with
    ``dynamic=False``: the sizes are constants of the matrices it builds.
    """
    ends = [x[:, None].expand(-1, crop.count).flatten() for x in (heights, widths)]
    draws = geometry.flatten(0, 1).double()
    axes = resample.window_axes(draws, ends[0], ends[1], crop)
    flip = draws[:, resample.FLIP] < crop.flip
    frame, side = pictures.shape[1::2], resample.canvas_side(crop)
    largest, outside = resample.largest_step(crop, *frame), "edge" if crop.inside else crop.outside
    rows, columns = (
        resample.resample_matrix(axis, side, inputs, crop.interpolation, largest, mirror, outside)
        for axis, inputs, mirror in zip(axes, frame, (None, flip), strict=True)
    )
    if outside == "edge":
        view = resample.apply_separable(pictures, rows, columns)
    else:
        # Where the filter leaves the picture it reads 0, so 0 is made to mean the corners' colour.
        colour = resample.corner_colour(pictures, heights, widths)
        view = resample.apply_separable(pictures - colour, rows, columns)
        view = (view.unflatten(0, (-1, crop.count)) + colour[:, None]).flatten(0, 1)
    if crop.affine:
        angle = (2 * draws[:, resample.ANGLE] - 1) * math.radians(crop.rotation)
        slant = (2 * draws[:, resample.SLANT] - 1) * crop.shear
        view = resample.turn(view, crop.size, angle, slant, crop.interpolation)
    return photometric.photometric(view.clamp_(0, 1), colours.flatten(0, 1), crop.photometric)


@torch.no_grad()
def centre_crop(
    batch: Pictures,
    resize: int | tuple[int, int],
    size: int,
    mean: Sequence[float],
    std: Sequence[float],
    interpolation: Interpolation = "bicubic",
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """The evaluation view ``(b, C, size, size)``: resized, then the middle square, normalised.

    ``resize`` is the new short side (the long one follows), or a pair (height, width) that every
    picture is squashed to: ``256`` for few-shot and k-NN, ``(256, 256)`` for transfer.

    >>> from types import SimpleNamespace
    >>> pixels, sides = torch.zeros(5, 64, 64, 3, dtype=torch.uint8), torch.full((5,), 64)
    >>> batch = SimpleNamespace(pixels=pixels, heights=sides, widths=sides)
    >>> tuple(centre_crop(batch, 256, 224, [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]).shape)
    (5, 3, 224, 224)
    """
    smallest = resize if isinstance(resize, int) else min(resize)
    if smallest < size:
        raise ValueError(f"resize {resize} is smaller than the centre crop {size} taken from it")
    pixels = batch.pixels
    scale, shift = _normalisation(mean, std, pixels)
    b, *frame, channels = pixels.shape
    output = pixels.new_empty((b, channels, size, size), dtype=dtype)
    for part in _chunks(pixels, 4 * channels * frame[1] * max(frame[0], size)):
        pictures, heights, widths = _pictures(batch, part)
        axes = resample.centre_axes(heights, widths, resize, size)
        rows, columns = (
            resample.resample_matrix(axis, size, inputs, interpolation, max(frame) / smallest)
            for axis, inputs in zip(axes, frame, strict=True)
        )
        view = resample.apply_separable(pictures, rows, columns).clamp_(0, 1)
        output[part].copy_(torch.addcmul(shift, view, scale).permute(0, 2, 1, 3))
    return output


def _draw(seed: int, step: int, indices: Tensor, kind: int, crop: Crop) -> tuple[Tensor, Tensor]:
    """``(b, count, resample.DRAWS)`` and ``(b, count, DRAWS)`` for one kind of view."""
    geometry = uniform(seed, step, indices, f"crop {kind}", crop.count * resample.DRAWS)
    colours = uniform(seed, step, indices, f"colour {kind}", crop.count * photometric.DRAWS)
    return geometry.unflatten(1, (crop.count, -1)), colours.unflatten(1, (crop.count, -1))


def _allocate(
    views: Views, pixels: Tensor, dtype: torch.dtype
) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors to return, and each crop's ``(count, b, C, size, size)`` place in them."""
    b, _, _, channels = pixels.shape
    outputs, places = [], []
    for size, _, counts in views.tensors:
        output = pixels.new_empty((sum(counts), b, channels, size, size), dtype=dtype)
        outputs.append(output.flatten(0, 1))
        places.extend(output.split(list(counts)))
    return outputs, places


def _pictures(batch: Pictures, part: slice) -> tuple[Tensor, Tensor, Tensor]:
    """Float pictures ``(n, H, C, W)`` in [0, 1], with their heights and widths."""
    pixels = batch.pixels[part].permute(0, 1, 3, 2)
    pictures = pixels.to(torch.float32, memory_format=torch.contiguous_format).mul_(1 / 255)
    return pictures, *_sides(batch, part)


def _sides(batch: Pictures, part: slice) -> tuple[Tensor, Tensor]:
    heights, widths = (x[part].to(batch.pixels.device) for x in (batch.heights, batch.widths))
    return heights, widths


def _normalisation(
    mean: Sequence[float], std: Sequence[float], pixels: Tensor
) -> tuple[Tensor, Tensor]:
    """``1 / std`` and ``-mean / std``, ``(1, 1, C, 1)``."""
    channels = pixels.shape[3]
    if not len(mean) == len(std) == channels:
        raise ValueError(
            f"pictures have {channels} channels, but mean has {len(mean)} and std {len(std)} values"
        )
    # Filled on the device: a copy from the host would wait for it.
    scale = [torch.full((1, 1, 1, 1), 1 / s, device=pixels.device) for s in std]
    shift = [
        torch.full((1, 1, 1, 1), -m / s, device=pixels.device)
        for m, s in zip(mean, std, strict=True)
    ]
    return torch.cat(scale, dim=2), torch.cat(shift, dim=2)


def _temporary_bytes(crop: Crop, pixels: Tensor) -> int:
    """Size of the largest temporary that ``render`` makes for one picture."""
    _, height, width, channels = pixels.shape
    side = resample.canvas_side(crop)
    return 4 * crop.count * side * max(channels * width, channels * side, height)


def _chunks(pixels: Tensor, bytes_each: int) -> Iterator[slice]:
    """Slices of the batch whose temporaries stay within the device's limit."""
    limit = _CHUNK_BYTES.get(pixels.device.type, _CHUNK_BYTES["other"])
    n = max(1, limit // bytes_each)
    return (slice(start, start + n) for start in range(0, len(pixels), n))
