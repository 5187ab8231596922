"""Matrix products in fp32 on a CPU, by the library that is quicker there.

torch asks Intel's MKL for them, which leaves half the width of an AMD CPU's registers unused. torch
brings oneDNN along too, for convolutions and bf16; there it is twice as fast. The functions here
choose, and each names the plain expression it equals. Elsewhere, for small matrices, and where
somebody looks into the operations (a compiler, an exporter, ``torch.func``), they are that
expression.
"""

import math
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

from wessl.devices import is_amd

WORTHWHILE = 2**22
"""Multiplications, for each thread, from which on a product saves more than asking costs."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.linear(x, weight, bias)``."""
    if by_onednn(x, weight, x.numel() * len(weight)):
        return _Product.apply(x.flatten(0, -2), weight.mT, bias).unflatten(0, x.shape[:-1])
    return F.linear(x, weight, bias)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b``, of matrices or of equally many of each."""
    return _Product.apply(a, b, None) if by_onednn(a, b, _size(a, b)) else a @ b


def baddbmm(bias: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``torch.baddbmm(bias[:, None], a, b)``: a row of ``bias`` for each pair of matrices."""
    if by_onednn(a, b, _size(a, b)):
        return _Product.apply(a, b, bias)
    return torch.baddbmm(bias[:, None], a, b)


def _size(a: Tensor, b: Tensor) -> int:
    """Multiplications of one matrix with another."""
    return math.prod(a.shape[-2:]) * b.shape[-1]


def by_onednn(a: Tensor, b: Tensor, size: int) -> bool:
    """Whether a product of that size goes there: fp32, on a CPU where it is quicker."""
    return (
        a.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and size >= WORTHWHILE * torch.get_num_threads()
        and _plain_fp32(a)
        and _plain_fp32(b)
        and a.dim() > 1
        and _quicker()
        and bool(torch.backends.mkldnn.enabled)
        and not torch.is_autocast_enabled("cpu")
        and not _looked_into()
    )


def _plain_fp32(x: Tensor) -> bool:
    """Not a shard either, nor a stand-in without values."""
    return type(x) in (Tensor, nn.Parameter) and x.dtype == torch.float32


@cache
def _quicker() -> bool:
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    return wide and both and hasattr(torch.ops.mkldnn, "_linear_pointwise") and is_amd()


def _looked_into() -> bool:
    return (
        torch._C._is_tracing()
        or torch._C._are_functorch_transforms_active()
        or torch._C._len_torch_dispatch_stack() > 0  # operations are counted, or only pretended
        or forward_ad._current_level >= 0
    )


class _Product(torch.autograd.Function):
    """``a @ b + bias``, of matrices or stacks of them."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(a, b)
        if a.dim() == 2:
            return _of_two(a, b, bias)
        biases = [None] * len(a) if bias is None else bias
        return torch.stack([_of_two(*three) for three in zip(a, b, biases, strict=True)])

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> tuple[Tensor | None, ...]:
        (slope,), (a, b), wanted = slopes, ctx.saved_tensors, ctx.needs_input_grad
        of_a = matmul(slope, b.mT) if wanted[0] else None
        of_b = None
        if wanted[1]:  # the first of two is copied if it is turned: let it be the smaller
            small = a.shape[-1] <= slope.shape[-1]
            of_b = matmul(a.mT, slope) if small else matmul(slope.mT, a).mT
        return of_a, of_b, slope.sum(-2) if wanted[2] else None


def _of_two(a: Tensor, b: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(a, b.mT, bias, "none", [], "")
