"""The encoder's attention and GELU: Triton kernels on a CUDA device, plain PyTorch elsewhere.

The functions here choose. Each names the plain expression it equals; in half precision on CUDA it
runs the kernels of ``attention`` and ``gelu`` instead, which save traffic through device memory:
a small transformer waits for that more than for arithmetic.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from wessl.encoder.kernels import attention, gelu


def linear_attention(x: Tensor, weight: Tensor, bias: Tensor, heads: int) -> Tensor:
    """``attention_plain(F.linear(x, weight, bias), heads)``."""
    if in_half(x) and attention.fits(x.shape[1], len(weight) // (3 * heads)):
        # The bias gets its gradient from the kernel, which sums it while writing the layer's.
        return attention.apply(F.linear(x, weight, bias.detach()), bias, heads)
    qkv = F.linear(x, weight, bias)
    if qkv.device.type == "cpu" and qkv.dtype == torch.bfloat16 and x.shape[1] <= PRODUCTS:
        return attention_by_products(qkv, heads)
    return attention_plain(qkv, heads)


PRODUCTS = 256
"""Tokens up to which a CPU holds the attention of bf16 as a matrix; it grows with their square."""


def attention_plain(qkv: Tensor, heads: int) -> Tensor:
    """Queries, keys and values ``(b, n, 3 dim)`` to ``(b, n, dim)``; heads lie side by side."""
    q, k, v = qkv.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def attention_by_products(qkv: Tensor, heads: int) -> Tensor:
    """``attention_plain`` by two products and a softmax in fp32.

    In bf16 the library's own, forward and backward, takes a CPU two to seven times as long.
    """
    q, k, v = qkv.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
    return (scores.float().softmax(-1).to(v.dtype) @ v).transpose(1, 2).flatten(2)


def linear_gelu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """``F.gelu(F.linear(x, weight, bias))``."""
    if in_half(x):
        return gelu.apply(F.linear(x, weight, bias.detach()), bias)
    return F.gelu(F.linear(x, weight, bias))


def stream(x: Tensor) -> Tensor:
    """The residual stream as the blocks add to it: under CUDA's autocast of that type too."""
    return x.to(layer_type(x)) if x.is_cuda else x


def in_half(x: Tensor) -> bool:
    """Whether a linear layer of ``x`` runs in half precision, where the kernels do."""
    half = layer_type(x) in (torch.bfloat16, torch.float16)
    return half and x.is_cuda and _run_on(x.device.index)


@torch.compiler.assume_constant_result
def _run_on(device: int) -> bool:
    """Triton launches on the current device, and multiplies bf16 from Ampere on."""
    here = device == torch.cuda.current_device()
    return attention.AVAILABLE and here and torch.cuda.get_device_capability() >= (8, 0)


def layer_type(x: Tensor) -> torch.dtype:
    """The type of a linear layer's output."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
