"""What a run will take, before it starts: operations and bytes, from the config alone.

Estimates, stated as such. The constants come from one ViT-S/16 run (2x224 + 10x96, batch 256,
bf16): 31 GiB at its peak, and 122 GFLOP an image by counting the matrix products.
"""

from wessl.config import Config, EncoderConfig
from wessl.data.view_config import Crop

VIT = {"T": (192, 12, 3), "S": (384, 12, 6), "B": (768, 12, 12), "L": (1024, 24, 16)}

PEAK_FLOPS = {  # dense bf16, from the makers' data sheets
    "H200": 989e12,
    "H100": 989e12,
    "A100": 312e12,
    "L40S": 362e12,
    "RTX 4090": 165e12,
    "RTX 3090": 71e12,
    "V100": 125e12,
    "T4": 65e12,
}

BYTES_PER_PARAMETER = 4 + 4 + 8 + 4
"""Student, gradient, AdamW's two moments, teacher; all fp32."""
BYTES_PER_ACTIVATION = {"bf16": 34, "fp32": 60}
"""Kept for backward, for each token, block and channel."""


def tokens(crop: Crop, encoder: EncoderConfig) -> int:
    """Tokens of one view; for the convolutional encoder its cells, half a side after the stem."""
    side = encoder.patch_size if encoder.kind == "vit" else 2
    return 1 + (crop.size // side) ** 2


def shape(encoder: EncoderConfig) -> tuple[int, int]:
    """Width and depth; the convolutional encoder counts as its widths' mean, two layers a block."""
    if encoder.kind == "conv":
        return sum(encoder.widths) // len(encoder.widths), 2 * len(encoder.widths)
    dim, depth, _ = VIT[encoder.size]
    return encoder.dim or dim, encoder.depth or depth


def forward_flops(crop: Crop, config: Config) -> float:
    """One view through the encoder once."""
    n = tokens(crop, config.encoder)
    dim, depth = shape(config.encoder)
    if config.encoder.kind == "conv":
        return 2.0 * n * 9 * dim * dim * depth / 4  # later blocks see a quarter of the cells
    dense = 12 * dim * dim
    attention = 2 * n * dim
    return 2.0 * depth * n * (dense + attention)


def flops_per_image(config: Config) -> float:
    """Student forward and backward (three passes) and teacher forward, heads included."""
    student = teacher = 0.0
    m, hidden = config.heads.count, config.heads.hidden_dim
    dim, _ = shape(config.encoder)
    embed, codes = config.heads.embed_dim, config.heads.codes
    head = 2.0 * m * (dim * hidden + (config.heads.depth - 2) * hidden * hidden + hidden * embed)
    head += 2.0 * m * embed * codes
    for crop in config.views.crops:
        one = crop.count * (forward_flops(crop, config) + head)
        student += one if crop.role != "target" else 0
        teacher += one if crop.role != "local" else 0
    return 3 * student + teacher


def parameters(config: Config) -> float:
    dim, depth = shape(config.encoder)
    encoder = 9.0 * dim * dim * depth if config.encoder.kind == "conv" else 12.0 * dim * dim * depth
    h = config.heads
    head = dim * h.hidden_dim + (h.depth - 2) * h.hidden_dim**2 + h.hidden_dim * h.embed_dim
    return encoder + h.count * (head + h.codes * h.embed_dim)


def bytes_per_image(config: Config) -> float:
    """Activations and logits kept until the backward pass."""
    dim, depth = shape(config.encoder)
    per_token = BYTES_PER_ACTIVATION[config.precision] * dim * depth
    h = config.heads
    per_view = h.count * (12.0 * h.codes + 12.0 * h.hidden_dim * (h.depth - 1))
    seen = [crop for crop in config.views.crops if crop.role != "target"]
    return sum(crop.count * (tokens(crop, config.encoder) * per_token + per_view) for crop in seen)


def peak_bytes(config: Config) -> float:
    at_once = config.optim.batch_size / config.optim.accumulate
    return BYTES_PER_PARAMETER * parameters(config) + at_once * bytes_per_image(config)


def batch_that_fits(config: Config, memory: float) -> int:
    """The largest power of two whose estimate stays within nine tenths of the memory."""
    free = 0.9 * memory - BYTES_PER_PARAMETER * parameters(config)
    batch = 1
    while 2 * batch * bytes_per_image(config) <= free:
        batch *= 2
    return batch


def peak_flops(device_name: str) -> float | None:
    """The data sheet's rate of a known GPU."""
    return next((rate for name, rate in PEAK_FLOPS.items() if name in device_name), None)
