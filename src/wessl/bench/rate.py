"""What a device multiplies at its best, where its data sheet is not at hand."""

from functools import cache

import torch

from wessl.bench.turns import timed
from wessl.matrix_products import matmul


@cache
def matrix_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Operations a second in products of large matrices, the best of some."""
    side = 8192 if device.type == "cuda" else 1024
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    matmul(a, b)
    return 2 * side**3 / min(timed(lambda: matmul(a, b), device) for _ in range(20))
