"""Colour jitter, grey, blur and solarise for many pictures at once, each with its own draws.

Pictures are ``(n, height, channels, width)`` float in [0, 1]. A picture that an operation skips
gets the operation's neutral parameter (factor 1, no turn, no blur) instead of a branch, so nothing
here waits for the device and all of it can be compiled.
"""

import math

import torch
from torch import Tensor

from wessl.data.views.config import Photometric

DRAWS = 13
"""Uniform numbers ``photometric`` takes for each picture."""

_THRESHOLD = 128 / 255


def photometric(pictures: Tensor, draws: Tensor, config: Photometric) -> Tensor:
    """DINO's photometric augmentation of ``pictures (n, h, c, w)`` by ``draws (n, DRAWS)``.

    >>> bright = Photometric(jitter=1.0, contrast=0, saturation=0, hue=0, grey=0, blur=0)
    >>> photometric(torch.full((1, 2, 1, 2), 0.5), torch.full((1, DRAWS), 0.75), bright)[0, 0]
    tensor([[0.6000, 0.6000]])
    """
    jitter_draw, order, amounts = draws[:, 0], draws[:, 1:5], draws[:, 5:9]
    grey_draw, blur_draw, sigma_draw, solarise_draw = draws[:, 9:].unbind(1)
    if config.jitter > 0:
        pictures = jitter(pictures, jitter_draw < config.jitter, order, amounts, config)
    if config.grey > 0 and pictures.shape[2] == 3:
        chosen = _per_picture(grey_draw < config.grey)
        pictures = torch.where(chosen, luminance(pictures), pictures)
    if config.blur > 0:
        low, high = config.blur_sigma
        sigma = torch.where(blur_draw < config.blur, low + (high - low) * sigma_draw, 0.0)
        pictures = blur(pictures, sigma, largest=high)
    if config.solarise > 0:
        chosen = _per_picture(solarise_draw < config.solarise)
        pictures = torch.where(chosen & (pictures >= _THRESHOLD), 1 - pictures, pictures)
    return pictures


def jitter(
    pictures: Tensor, chosen: Tensor, order: Tensor, amounts: Tensor, config: Photometric
) -> Tensor:
    """Brightness, contrast, saturation and hue of the ``chosen (n,)`` pictures.

    The four columns of ``order`` and ``amounts`` belong to these four; each picture applies them
    from its smallest ``order`` to its largest. ``amounts`` in [0, 1) go from the least factor
    (or turn) to the largest.
    """
    strengths = [config.brightness, config.contrast, config.saturation]
    active = [op for op in range(3) if strengths[op] > 0 and (op < 2 or pictures.shape[2] == 3)]
    hue = config.hue > 0 and pictures.shape[2] == 3
    if active:
        lows = [max(0.0, 1 - strengths[op]) for op in active]
        factors = torch.stack(
            [
                low + (1 + strengths[op] - low) * amounts[:, op]
                for op, low in zip(active, lows, strict=True)
            ],
            dim=1,
        )
        factors = torch.where(chosen[:, None], factors, 1.0)
        keys = torch.stack([order[:, op] for op in active], dim=1)
    if not hue:
        return _blend_in_order(pictures, factors, keys, active) if active else pictures
    turns = torch.where(chosen, (2 * amounts[:, 3] - 1) * config.hue, 0.0)
    if not active:
        return rotate_hue(pictures, turns)
    # Hue is not a blend. It stands at a different place for each picture, so the blends run
    # twice around it, each time with factor 1 for those that belong to the other side.
    early = keys < order[:, 3:]
    pictures = _blend_in_order(pictures, torch.where(early, factors, 1.0), keys, active)
    pictures = rotate_hue(pictures, turns)
    return _blend_in_order(pictures, torch.where(early, 1.0, factors), keys, active)


def _blend_in_order(pictures: Tensor, factors: Tensor, keys: Tensor, ops: list[int]) -> Tensor:
    """Brightness (op 0), contrast (1), saturation (2) by ``factors (n, a)``, least key first."""
    zero = torch.zeros_like(factors[:, 0])
    rest = 1 - factors
    to_mean = torch.stack([rest[:, i] if op == 1 else zero for i, op in enumerate(ops)], dim=1)
    to_grey = torch.stack([rest[:, i] if op == 2 else zero for i, op in enumerate(ops)], dim=1)
    order = keys.argsort(dim=1)
    slots = zip(*(x.gather(1, order).unbind(1) for x in (factors, to_mean, to_grey)), strict=True)
    for gain, mean_share, grey_share in slots:
        pictures = blend(pictures, gain, mean_share, grey_share)
    return pictures


def blend(pictures: Tensor, gain: Tensor, mean_share: Tensor, grey_share: Tensor) -> Tensor:
    """``gain x + mean_share mean(grey(x)) + grey_share grey(x)``, clamped; (n,) parameters.

    With a factor f this is PIL's brightness as (f, 0, 0), contrast as (f, 1 - f, 0) and
    saturation as (f, 0, 1 - f).
    """
    grey = luminance(pictures)
    mean = grey.mean(dim=(1, 2, 3), keepdim=True)
    added = torch.addcmul(_per_picture(mean_share) * mean, grey, _per_picture(grey_share))
    return torch.addcmul(added, pictures, _per_picture(gain)).clamp_(0, 1)


def luminance(pictures: Tensor) -> Tensor:
    """``(n, h, 1, w)``: ITU-R 601 luma of three channels, the mean of any other number."""
    if pictures.shape[2] != 3:
        return pictures.mean(dim=2, keepdim=True)
    red, green, blue = pictures.split(1, dim=2)
    return (0.299 * red).add_(green, alpha=0.587).add_(blue, alpha=0.114)


def rotate_hue(pictures: Tensor, turns: Tensor) -> Tensor:
    """Turn the hue of ``(n, h, 3, w)`` by ``turns (n,)``, keeping HSV's saturation and value."""
    red, green, blue = pictures.unbind(2)
    top = red.maximum(green).maximum(blue)
    low = red.minimum(green).minimum(blue)
    spread = top - low
    scale = 1 / spread.clamp(min=1e-12)
    # The hue in sixths of a turn, counted from the channel that is largest.
    hue = torch.where(top == green, 2 + (blue - red) * scale, 4 + (red - green) * scale)
    hue = torch.where(top == red, (green - blue) * scale, hue)
    hue = (hue + 6 * turns[:, None, None]).remainder_(6)
    shares = [(hue - 3).abs_() - 1, 2 - (hue - 2).abs_(), 2 - (hue - 4).abs_()]
    return torch.stack([torch.addcmul(low, spread, share.clamp_(0, 1)) for share in shares], dim=2)


def blur(pictures: Tensor, sigma: Tensor, largest: float) -> Tensor:
    """Gaussian blur of ``(n, h, c, w)`` by ``sigma (n,)`` pixels, at most ``largest``; 0 is none.

    The kernel is cut at four ``largest`` sigmas, and pixels beyond the border repeat the edge.
    """
    n, height, channels, width = pictures.shape
    rows = _blur_matrix(sigma, height, largest)
    columns = rows if width == height else _blur_matrix(sigma, width, largest)
    blurred = torch.bmm(rows, pictures.reshape(n, height, channels * width))
    blurred = torch.bmm(blurred.view(n, height * channels, width), columns.mT)
    return blurred.view(n, height, channels, width)


def _blur_matrix(sigma: Tensor, size: int, largest: float) -> Tensor:
    """``(n, size, size)``: row i holds the weights of the pixels that make pixel i."""
    radius = math.ceil(4 * largest)
    tap = torch.arange(-radius, radius + 1, device=sigma.device)
    # At a thousandth of a pixel every tap but the middle one underflows to exactly 0.
    weight = torch.exp(-0.5 * (tap / sigma.clamp(min=1e-3)[:, None]).square())
    # The border pixel stands for all beyond it. Its taps are summed here, not by the scatter,
    # whose order of additions is not fixed on a GPU; there, all but one of them are zero. Nor by
    # a product of matrices, whose rounding depends on how many pictures there are.
    up_to = weight[:, :, None].expand(-1, -1, len(tap)).triu().sum(1)
    source = torch.arange(size, device=sigma.device)[:, None] + tap
    weight = torch.where(source == size - 1, up_to.flip(1)[:, None], weight[:, None])
    weight = torch.where(source == 0, up_to[:, None], weight)
    weight = torch.where((source >= 0) & (source < size), weight, 0.0)
    weight = weight / weight.sum(2, keepdim=True)
    matrix = weight.new_zeros(len(sigma), size, size)
    return matrix.scatter_add_(2, source.clamp(0, size - 1).expand_as(weight), weight)


def _per_picture(values: Tensor) -> Tensor:
    return values[:, None, None, None]
