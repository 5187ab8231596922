"""The encoder's attention, GELU and norms: Triton kernels on a CUDA device, PyTorch elsewhere.

The functions here choose. Each names the plain expression it equals; in half precision on CUDA it
runs the kernels of ``attention``, ``gelu`` and ``norm`` instead, which save traffic through device
memory: a small transformer waits for that more than for arithmetic. To torch.compile they are
closed operators: it looked into every launch otherwise, and a first step came 20 s later.
"""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wessl.encoder.kernels import attention, gelu, norm
from wessl.encoder.segments import Segments
from wessl.matrix_products import linear


def linear_attention(
    x: Tensor, weight: Tensor, bias: Tensor, heads: int, segments: Segments | None = None
) -> Tensor:
    """``attention_plain(F.linear(x, weight, bias), heads, segments)``."""
    longest = x.shape[1] if segments is None else max(segments.tokens)
    if in_half(x) and attention.fits(longest, len(weight) // (3 * heads)):
        # The bias gets its gradient from the kernel, which sums it while writing the layer's.
        return attention.apply(F.linear(x, weight, bias.detach()), bias, heads, segments)
    qkv = linear(x, weight, bias)
    on_cpu_in_half = qkv.device.type == "cpu" and qkv.dtype == torch.bfloat16
    if segments is None and on_cpu_in_half and longest <= PRODUCTS:
        return attention_by_products(qkv, heads)
    return attention_plain(qkv, heads, segments)


PRODUCTS = 256
"""Tokens up to which a CPU holds the attention of bf16 as a matrix; it grows with their square."""


def attention_plain(qkv: Tensor, heads: int, segments: Segments | None = None) -> Tensor:
    """Queries, keys and values ``(b, n, 3 dim)`` to ``(b, n, dim)``; heads lie side by side.

    With segments ``(T, 3 dim)`` to ``(T, dim)``, each batch for itself.
    """
    if segments is not None:
        return torch.cat([attention_plain(x, heads).flatten(0, 1) for x in segments.split(qkv)])
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
    return F.gelu(linear(x, weight, bias))


def linear_add_norm(
    x: Tensor, scale: Tensor | None, h: Tensor, layer: nn.Linear, then: nn.LayerNorm
) -> tuple[Tensor, Tensor]:
    """``add_plain(x, scale, layer(h))`` and ``then`` of it."""
    if in_half(h) and x.dtype == layer_type(h):
        branch = F.linear(h, layer.weight, layer.bias.detach())
        return norm.apply(x, branch, scale, layer.bias, then.weight, then.bias, then.eps)
    y = add_plain(x, scale, layer(h))
    return y, then(y)


def add_plain(x: Tensor, scale: Tensor | None, branch: Tensor) -> Tensor:
    """``x + scale branch``, with one number of ``scale`` for each ``x[i]``; None is 1."""
    if scale is None:
        return x + branch
    return x + branch * scale.to(branch.dtype).view(-1, *[1] * (x.dim() - 1))


def stream(x: Tensor) -> Tensor:
    """The residual stream as the blocks add to it: under CUDA's autocast of that type too."""
    return x.to(layer_type(x)) if x.is_cuda else x


def share_a_stream(batches: Sequence[Tensor], heads: int) -> bool:
    """Whether tokens ``(b, n, dim)`` of several batches go through the blocks side by side.

    The kernels take them so without a copy; plain attention would have to.
    """
    fit = all(attention.fits(x.shape[1], x.shape[2] // heads) for x in batches)
    return len(batches) > 1 and fit and all(map(in_half, batches))


def in_half(x: Tensor) -> bool:
    """Whether a linear layer of ``x`` runs in half precision, where the kernels do."""
    half = layer_type(x) in (torch.bfloat16, torch.float16)
    return half and x.is_cuda and _run_on(x.device.index)


def _run_on(device: int) -> bool:
    """Triton launches on the current device, and multiplies bf16 from Ampere on."""
    here = device == torch.cuda.current_device()
    return attention.AVAILABLE and here and torch.cuda.get_device_capability() >= (8, 0)


# What torch.compiler.assume_constant_result does; that also imports the compiler, a second of time.
_run_on._dynamo_marked_constant = True  # type: ignore[attr-defined]


def layer_type(x: Tensor) -> torch.dtype:
    """The type of a linear layer's output."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
