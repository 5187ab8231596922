"""What a run will take, before it starts: operations and bytes, from the config alone.

Estimates, stated as such. On a GPU they are within 2 % of what steps of ViT-S/16 took (batch 256,
bf16: 27.5 GiB with 16 heads, 26.7 with one, 27.7 with one of 65,536 codes; with MSN*'s eight and
masks 24.5 when hidden layers were kept twice), and 4 % too low for 64 heads (31.3); on a CPU within
20 % of what a process of small transformers took. An image of S/16 takes 122 GFLOP by counting the
matrix products.
"""

import itertools
import re

from wessl.config import Config
from wessl.data.views.config import Crop
from wessl.encoder.sizes import GRID, SIZES
from wessl.ensemble.parts import PART

PEAK_FLOPS = {  # dense bf16 (fp16 where there is none), from the makers' data sheets
    "B200": 2250e12,
    "GH200": 989e12,
    "H200": 989e12,
    "H100": 989e12,
    "A100": 312e12,
    "A40": 150e12,
    "A10": 125e12,
    "A10G": 70e12,
    "L40S": 362e12,
    "L40": 181e12,
    "L4": 121e12,
    "RTX 5090": 209e12,
    "RTX 4090": 165e12,
    "RTX 3090": 71e12,
    "V100": 125e12,
    "T4": 65e12,
}

BYTES_PER_PARAMETER = 4 + 4 + 8 + 4
"""Student, gradient, AdamW's two moments, teacher; all fp32."""

KEPT = {("cuda", "bf16"): 14.7, ("cpu", "fp32"): 17.0, ("cpu", "bf16"): 27.0}
"""Numbers a transformer keeps for backward, by token, channel and block, fitted to measured peaks.
Kernels keep fewer; a CPU keeps some of bf16's in fp32, and memory of its own beside the tensors."""


def _shape(config: Config) -> tuple[int, int]:
    encoder = config.encoder
    dim, depth, _ = SIZES[encoder.size]
    return encoder.dim or dim, encoder.depth or depth


def _tokens(config: Config, crop: Crop, masked: bool = False) -> int:
    """Patches and [CLS] of a view; masked, as the student sees its large ones."""
    patches = (crop.size // config.encoder.patch_size) ** 2
    of_student = [(c.size, c.role) for c in config.views.crops if c.role != "target"]
    if masked and (crop.size, crop.role) in of_student[:1]:
        patches = config.loss.patches_kept(patches)
    return patches + 1


def flops_per_image(config: Config) -> float:
    """Of one picture in one step: student forward and backward, teacher forward."""
    heads, total = config.heads, 0.0
    dim, depth = _shape(config)
    if config.encoder.kind == "conv":
        dim = config.encoder.widths[-1]
    widths = [dim, *[heads.hidden_dim] * (heads.depth - 1), heads.embed_dim, heads.codes]
    of_heads = heads.count * sum(a * b for a, b in itertools.pairwise(widths))
    for crop in config.views.crops:
        # Forward, and backward twice that; the teacher has no backward.
        for passes, of_student in ((3, True), (1, False)):
            if crop.role == ("target" if of_student else "local"):
                continue
            if config.encoder.kind == "conv":
                products = _of_conv(config.encoder.widths, config.channels, crop.size)
            else:
                tokens = _tokens(config, crop, masked=of_student)
                products = depth * tokens * (12 * dim * dim + 2 * tokens * dim)
            total += 2.0 * crop.count * passes * (products + of_heads)
    return total


def _of_conv(widths: tuple[int, ...], channels: int, size: int) -> float:
    """Products of one view: a stem that halves it, then blocks of which all but one halve again."""
    side = size / 2
    total = side**2 * 9 * channels * widths[0]
    for i, (a, b) in enumerate(itertools.pairwise(widths)):
        side = side / 2 if i else side
        total += side**2 * (9 * a * b + 9 * b * b + a * b)
    return total


def _conv_numbers(widths: tuple[int, ...], size: int) -> float:
    """Cells times channels of what the stem and each block give."""
    sides = [size / 2, *(size / 2 ** max(1, i) for i in range(1, len(widths)))]
    return sum(side**2 * width for side, width in zip(sides, widths, strict=True))


def bytes_per_image(config: Config, device: str = "cuda") -> float:
    """Activations of one picture kept for backward: of all views the student sees.

    `KEPT` numbers a token, channel and block of a transformer, without kernels (fp32) as on a CPU;
    8 a cell and channel of a convolution.
    """
    kept = KEPT.get((device, config.precision), KEPT["cpu", "fp32"])
    wide = 2 if config.precision == "bf16" else 4
    heads, total = config.heads, 0.0
    layers = 2 if device == "cuda" else 4  # GELU's results are kept on a CPU alone
    # Embeddings and their gradient; ME-MAX wants the logits of all views, and computes with them.
    numbers = 3 * heads.codes if config.loss.me_max else 2 * heads.embed_dim
    of_heads = heads.count * (layers * heads.hidden_dim * wide + 4 * numbers)
    dim, depth = _shape(config)
    for crop in config.views.crops:
        if crop.role == "target":
            continue
        if config.encoder.kind == "conv":
            of_encoder = 8.0 * _conv_numbers(config.encoder.widths, crop.size) * wide
        else:
            of_encoder = kept * dim * depth * _tokens(config, crop, masked=True) * wide
        total += crop.count * (of_encoder + of_heads)
    return total


def parameters(config: Config) -> int:
    """Of the student, encoder and heads."""
    h, conv = config.heads, config.encoder.kind == "conv"
    dim = config.encoder.widths[-1] if conv else _shape(config)[0]
    encoder = _conv_parameters(config) if conv else _vit_parameters(config)
    projections, codebooks = (1 if h.share == s else h.count for s in ("projection", "codebook"))
    widths = [dim, *[h.hidden_dim] * (h.depth - 1), h.embed_dim]
    projection = sum(a * b + b for a, b in itertools.pairwise(widths))
    projection += h.batch_norm * 2 * sum(widths[1:-1])
    codebook = h.codes * (h.embed_dim + (h.code_length != "one"))
    return encoder + projections * projection + codebooks * codebook


def _vit_parameters(config: Config) -> int:
    dim, depth = _shape(config)
    side = config.encoder.patch_size
    patch = side**2 * config.channels + 1
    positions = (config.encoder.image_size // side) ** 2 + 1
    block = 12 * dim + 13  # four products, their biases, and two norms
    return dim * (patch + 1 + positions + depth * block + 2)  # with [CLS] and the last norm


def _conv_parameters(config: Config) -> int:
    """Of the stem, the blocks with their norms and skips, and the layer that reads the cells."""
    widths = config.encoder.widths
    dim, total = widths[-1], (9 * config.channels + 2) * widths[0]
    for i, (a, b) in enumerate(itertools.pairwise(widths)):
        skip = a * b if i or a != b else 0
        total += 9 * a * b + 9 * b * b + 4 * b + skip
    return total + (GRID**2 * dim + 1) * dim


def batch_bytes(config: Config) -> float:
    """Of one picture, held for the whole batch in however many parts it is computed.

    Its pixels, its views (made through one copy of their size), and the teacher's targets, plain
    and weighted.
    """
    heads, crops = config.heads, config.views.crops
    pixels = 1.4 * config.short_side**2 * config.channels
    views = sum(crop.count * crop.size**2 for crop in crops) * config.channels * 4.0
    return pixels + 2 * views + 2 * config.views.taught * heads.count * heads.codes * 4.0


def logits_bytes(config: Config, pictures: float) -> float:
    """Of the views that have theirs together, and of what is computed from them."""
    if config.loss.me_max:  # counted with the activations
        return 0.0
    of_view = 4.0 * config.heads.count * config.heads.codes * pictures
    views = sum(crop.count for crop in config.views.crops if crop.role != "target")
    return 3 * min(views * of_view, max(of_view, PART))


def peak_bytes(config: Config, device: str = "cuda") -> float:
    """Networks, optimiser, a batch and the activations of a part of it; no resident pictures."""
    batch = config.optim.batch_size
    at_once = batch / config.optim.accumulate
    fixed = BYTES_PER_PARAMETER * parameters(config) + logits_bytes(config, at_once)
    return fixed + batch * batch_bytes(config) + at_once * bytes_per_image(config, device)


def batch_that_fits(config: Config, memory: float, device: str = "cuda") -> int:
    """The largest power of two whose estimate stays within nine tenths of the memory."""
    free = 0.9 * memory - BYTES_PER_PARAMETER * parameters(config)
    each = bytes_per_image(config, device) + batch_bytes(config)
    batch = 1
    while 2 * batch * each + logits_bytes(config, 2 * batch) <= free:
        batch *= 2
    return batch


def peak_flops(device_name: str) -> float | None:
    """The data sheet's rate of a known GPU.

    >>> peak_flops("NVIDIA L40S"), peak_flops("Tesla V100-SXM2-16GB"), peak_flops("NVIDIA T400")
    (362000000000000.0, 125000000000000.0, None)
    """
    named = (rate for name, rate in PEAK_FLOPS.items() if re.search(rf"\b{name}\b", device_name))
    return next(named, None)
