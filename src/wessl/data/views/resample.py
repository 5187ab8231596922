"""Antialiased resizing of many pictures at once, as products with row and column matrices.

A resize is linear and separable: each row of the result is a weighted sum of rows of the picture,
and each column likewise. Every picture of a batch has its own window, size and flip, so every
picture has its own two matrices; a batched matrix product then does all of them.

Pictures are held as ``(n, height, channels, width)``: rows on the left and columns on the right
are then both plain matrix products, without a copy in between.
"""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from wessl.data.views.config import Crop, Interpolation, Outside

_Pair = tuple[Tensor, Tensor]

# How many source pixels (of the coarser grid) a filter reaches to either side.
_SUPPORT: dict[Interpolation, float] = {"bicubic": 2.0, "bilinear": 1.0}

# torchvision draws this many windows before it gives up and takes the middle of the picture.
_TRIES = 10

# The uniform numbers of a window: areas and aspects of the tries, then one column for each of:
LEFT, TOP, FLIP, ANGLE, SLANT = range(2 * _TRIES, 2 * _TRIES + 5)
DRAWS = 2 * _TRIES + 5


class Axis(NamedTuple):
    """Where n windows lie along one axis of their pictures, in pixels: n numbers each, float64.

    Output i of a window is centred on ``start + (i + 1/2) step`` and reads only pixels from
    ``low`` up to ``high``.
    """

    start: Tensor
    step: Tensor
    low: Tensor
    high: Tensor


def window_axes(draws: Tensor, heights: Tensor, widths: Tensor, crop: Crop) -> tuple[Axis, Axis]:
    """Rows and columns of a random window of each picture, by ``draws (n, DRAWS)`` in float64.

    For turned views it is widened on all sides to the canvas they are cut from.
    """
    ends = heights.to(draws.dtype), widths.to(draws.dtype)
    if crop.inside:
        starts, lengths = _window_inside(draws, *ends, crop)
        bounds = tuple(
            (start, start + length) for start, length in zip(starts, lengths, strict=True)
        )
    else:
        starts, lengths = _window_beyond(draws, *ends, crop)
        bounds = tuple((torch.zeros_like(end), end) for end in ends)
    spare = (canvas_side(crop) - crop.size) / 2
    steps = [length / crop.size for length in lengths]
    rows, columns = (Axis(starts[i] - spare * steps[i], steps[i], *bounds[i]) for i in range(2))
    return rows, columns


def _candidates(draws: Tensor, height: Tensor, width: Tensor, crop: Crop) -> _Pair:
    """Heights and widths ``(n, tries)`` of the windows that are tried, before any rounding."""
    areas, aspects = draws[:, :_TRIES], draws[:, _TRIES : 2 * _TRIES]
    low, high = crop.area
    area = (low + (high - low) * areas) * (height * width)[:, None]
    low, high = math.log(crop.aspect[0]), math.log(crop.aspect[1])
    aspect = torch.exp(low + (high - low) * aspects)
    return (area / aspect).sqrt(), (area * aspect).sqrt()


def _window_inside(draws: Tensor, height: Tensor, width: Tensor, crop: Crop) -> tuple[_Pair, _Pair]:
    """(top, left) and (height, width) of torchvision's RandomResizedCrop window.

    The first of ten candidates that fits; if none does, the largest window in the middle whose
    aspect is in range.
    """
    heights, widths = (x.round() for x in _candidates(draws, height, width, crop))
    fits = (widths >= 1) & (heights >= 1)
    fits &= (widths <= width[:, None]) & (heights <= height[:, None])
    first = fits.int().argmax(dim=1, keepdim=True)
    found = fits.any(dim=1)

    middle_height = torch.minimum(height, (width / crop.aspect[0]).round()).clamp(min=1)
    middle_width = torch.minimum(width, (height * crop.aspect[1]).round()).clamp(min=1)
    box_height = torch.where(found, heights.gather(1, first)[:, 0], middle_height)
    box_width = torch.where(found, widths.gather(1, first)[:, 0], middle_width)

    def place(spare: Tensor, draw: Tensor) -> Tensor:
        return torch.where(found, draw * (spare + 1), spare / 2).floor()

    top = place(height - box_height, draws[:, TOP])
    left = place(width - box_width, draws[:, LEFT])
    return (top, left), (box_height, box_width)


def _window_beyond(draws: Tensor, height: Tensor, width: Tensor, crop: Crop) -> tuple[_Pair, _Pair]:
    """(top, left) and (height, width) of a window that need not fit.

    Along each axis it lies inside the picture where it is shorter and covers it where longer.
    """
    heights, widths = _candidates(draws, height, width, crop)
    box_height, box_width = heights[:, 0], widths[:, 0]
    top = draws[:, TOP] * (height - box_height)
    left = draws[:, LEFT] * (width - box_width)
    return (top, left), (box_height, box_width)


def largest_step(crop: Crop, height: int, width: int) -> float:
    """Bound on source pixels per pixel of the view, from the frame's size alone."""
    if crop.inside:
        return max(height, width) / crop.size
    stretch = max(crop.aspect[1], 1 / crop.aspect[0])
    return math.sqrt(crop.area[1] * stretch * height * width) / crop.size


def canvas_side(crop: Crop) -> int:
    """Side of the upright square, in pixels of the view, that a turned view is cut from."""
    if not crop.affine:
        return crop.size
    angles = [math.radians(min(crop.rotation, 90.0) * i / 90) for i in range(91)]
    slant = 1 + crop.shear
    reach = max(
        max(slant * math.cos(a) + math.sin(a), slant * math.sin(a) + math.cos(a)) for a in angles
    )
    # Two pixels more on each side for the reach of the cubic filter. Both sides get the same, so
    # that a view which happens to be upright falls on whole pixels and is not resampled twice.
    return crop.size + 2 * (math.ceil(crop.size * (reach - 1) / 2) + 2)


def centre_axes(
    heights: Tensor, widths: Tensor, resize: int | tuple[int, int], size: int
) -> tuple[Axis, Axis]:
    """Rows and columns of the middle ``size`` pixels of the resized pictures."""
    lengths = torch.stack([heights, widths]).double()
    if isinstance(resize, int):
        # torchvision cuts the long side's fraction off.
        resized = (resize * lengths / lengths.amin(0)).floor()
    else:
        resized = torch.stack([torch.full_like(lengths[0], side) for side in resize])
    steps = lengths / resized
    starts = ((resized - size) / 2).round() * steps
    low = torch.zeros_like(lengths[0])
    rows, columns = (Axis(starts[i], steps[i], low, lengths[i]) for i in range(2))
    return rows, columns


def resample_matrix(
    axis: Axis,
    outputs: int,
    inputs: int,
    interpolation: Interpolation,
    largest_step: float,
    flip: Tensor | None = None,
    outside: Outside = "edge",
) -> Tensor:
    """``(n, outputs, inputs)`` float32 weights: PIL's filters, mirrored where ``flip`` (n,) holds.

    As in PIL the filter widens with the step when that exceeds a pixel (antialiasing), and where
    it hangs over ``low`` or ``high`` the rest is scaled up to sum 1. An output centred outside
    of these repeats the outermost one inside; with ``outside="corners"`` what hangs over counts
    as 0 instead (see ``corner_colour``). ``largest_step`` bounds all steps: it sets the number
    of taps without reading a number back from the device.
    """
    low, high = axis.low[:, None], axis.high[:, None]
    step = axis.step[:, None]
    place = torch.arange(outputs, device=step.device, dtype=step.dtype)
    if flip is not None:
        place = torch.where(flip[:, None], outputs - 1 - place, place)
    centre = axis.start[:, None] + (place + 0.5) * step
    if outside == "edge":
        margin = step.clamp(max=1.0) / 2
        centre = centre.maximum(low + margin).minimum(high - margin)

    width = step.clamp(min=1.0)
    first = (centre - _SUPPORT[interpolation] * width + 0.5).floor()
    taps = 2 * math.ceil(_SUPPORT[interpolation] * max(1.0, largest_step)) + 1
    tap = torch.arange(taps, device=step.device)
    # Differences are taken in float64, so that pictures of any size keep sub-pixel accuracy.
    offset = (first + 0.5 - centre).float()[:, :, None] + tap
    source = first.long()[:, :, None] + tap
    weight = _kernel(offset / width.float()[:, :, None], interpolation)
    inside = (source >= low[:, :, None]) & (source < high[:, :, None])
    kept = torch.where(inside, weight, 0.0)
    weight = kept / (kept if outside == "edge" else weight).sum(2, keepdim=True)
    matrix = weight.new_zeros(len(weight), outputs, inputs)
    return matrix.scatter_add_(2, source.clamp(0, inputs - 1), weight)


def _kernel(x: Tensor, interpolation: Interpolation) -> Tensor:
    """The filter at distance x: Keys' cubic with a = -1/2, as PIL has it, or the triangle."""
    x = x.abs()
    if interpolation == "bilinear":
        return (1 - x).clamp(min=0)
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


def corner_colour(pictures: Tensor, heights: Tensor, widths: Tensor) -> Tensor:
    """``(b, 1, c, 1)``: the mean of the middle two of each picture's four corners, by channel.

    A single corner that a stroke reaches does not count.
    """
    picture = torch.arange(len(pictures), device=pictures.device)
    ends = [(y, x) for y in (heights * 0, heights - 1) for x in (widths * 0, widths - 1)]
    corners = torch.stack([pictures[picture, y, :, x] for y, x in ends])
    return corners.sort(dim=0).values[1:3].mean(dim=0)[:, None, :, None]


def apply_separable(pictures: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """``(n, h, c, w)`` by rows ``(n v, i, h)`` and columns ``(n v, j, w)``: ``(n v, i, c, j)``.

    The v windows of one picture lie next to each other and share one large product for their rows.
    """
    n, height, channels, width = pictures.shape
    views, out = rows.shape[:2]
    stacked = rows.reshape(n, views // n * out, height)
    partial = torch.bmm(stacked, pictures.reshape(n, height, channels * width))
    partial = partial.view(views, out * channels, width)
    return torch.bmm(partial, columns.mT).view(views, out, channels, columns.shape[1])


def turn(
    canvas: Tensor, size: int, angle: Tensor, slant: Tensor, interpolation: Interpolation
) -> Tensor:
    """The middle square of ``canvas (n, k, c, k)``, slanted, then turned: ``(n, size, c, size)``.

    Output pixel (x, y) from the middle shows the canvas at ``R(angle) (x + slant y, y)``. The
    canvas already has the view's resolution, so this second resampling needs no antialiasing.
    """
    cos, sin = angle.cos(), angle.sin()
    zero = torch.zeros_like(cos)
    x_row = torch.stack([cos, slant * cos - sin, zero], dim=1)
    y_row = torch.stack([sin, slant * sin + cos, zero], dim=1)
    matrix = torch.stack([x_row, y_row], dim=1) * (size / canvas.shape[1])
    planes = canvas.permute(0, 2, 1, 3)
    shape = [len(planes), planes.shape[1], size, size]
    grid = F.affine_grid(matrix.to(planes.dtype), shape, align_corners=False)
    turned = F.grid_sample(planes, grid, interpolation, "border", align_corners=False)
    return turned.permute(0, 2, 1, 3)
