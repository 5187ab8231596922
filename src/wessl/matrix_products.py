"""Matrix products in fp32 on a CPU, by the library that is quicker there.

torch asks Intel's MKL for them, which uses half the width of an AMD CPU's registers. From Zen 5 on
that is half of its speed, and oneDNN, which torch brings along for convolutions and bf16, uses all
of it (``benchmarks/matrix_products.py``). The functions here choose, and each names the plain
expression it equals. On other CPUs, for small matrices, and where somebody looks into the
operations (a compiler, an exporter, ``torch.func``), they are that expression.
"""

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

from wessl.devices import amd_family

WORTHWHILE = 2**22
"""Multiplications, for each thread, from which on a product saves more than asking costs."""
MEASURED_FROM = (2, 13)
"""The torch from which on oneDNN was seen to be quicker; what is asked of it is not public."""
ZEN_5 = 26
"""AMD's family from which on servers multiply registers of 512 bits at once; Zen 4 takes them in
halves, as MKL does, and gains next to nothing."""
LOOKS = ("_is_tracing", "_are_functorch_transforms_active", "_len_torch_dispatch_stack")
"""How ``torch._C`` tells who looks into operations."""


class Linear(nn.Linear):
    """``nn.Linear``, by ``linear``; what looks for that very class, as quantisers do, passes by."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``F.linear(x, weight, bias)``."""
    if by_onednn(x, weight, bias, turned=True):
        return _Product.apply(x.flatten(0, -2), weight.mT, bias).unflatten(0, x.shape[:-1])
    return F.linear(x, weight, bias)


def matmul(a: Tensor, b: Tensor) -> Tensor:
    """``a @ b``, of matrices or of equally many of each."""
    return _Product.apply(a, b, None) if by_onednn(a, b) else a @ b


def baddbmm(bias: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """``torch.baddbmm(bias[:, None], a, b)``: a row of ``bias`` for each pair of matrices."""
    if by_onednn(a, b, bias):
        return _Product.apply(a, b, bias)
    return torch.baddbmm(bias[:, None], a, b)


def by_onednn(a: Tensor, b: Tensor, bias: Tensor | None = None, turned: bool = False) -> bool:
    """Whether a product goes there: large, fp32, on a CPU that is quicker so.

    ``turned`` is a linear layer's: any number of rows with one matrix that lies on its side.
    """
    return (
        not torch.compiler.is_compiling()
        and _quicker()
        and a.device.type == b.device.type == "cpu"
        and _plain_fp32(a)
        and _plain_fp32(b)
        and (bias is None or _plain_fp32(bias))
        and bool(torch.backends.mkldnn.enabled)
        and not torch.is_autocast_enabled("cpu")
        and not _looked_into()
        and (_is_large(a, b.mT) if turned else a.shape[:-2] == b.shape[:-2] and _is_large(a, b))
    )


def _is_large(a: Tensor, b: Tensor) -> bool:
    """Whether the two fit, and a product, of stacks one of many, is worth asking for."""
    if a.dim() < 2 or b.dim() not in (2, 3) or a.shape[-1] != b.shape[-2]:
        return False
    rows = a.shape[:-1].numel() if b.dim() == 2 else a.shape[-2]
    return rows * b.shape[-2:].numel() >= WORTHWHILE * torch.get_num_threads()


def _plain_fp32(x: Tensor) -> bool:
    """Not a shard either, nor a stand-in without values."""
    return type(x) in (Tensor, nn.Parameter) and x.dtype == torch.float32


@cache
def _quicker() -> bool:
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    both = torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()
    return wide and both and _known() and amd_family() >= ZEN_5


def _known() -> bool:
    """Whether this torch has all that is asked of it here."""
    return (
        tuple(map(int, torch.__version__.split(".")[:2])) >= MEASURED_FROM
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and all(hasattr(torch._C, name) for name in LOOKS)
        and hasattr(forward_ad, "_current_level")
    )


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
        found = a.new_empty(*a.shape[:-1], b.shape[-1])
        biases = [None] * len(a) if bias is None else bias
        for one, *factors in zip(found, a, b, biases, strict=True):
            one.copy_(_of_two(*factors))
        return found

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
    # Of a second factor with gaps, or without strides, oneDNN takes a thousand times as long.
    dense = b if b.is_contiguous() or b.mT.is_contiguous() else b.contiguous()
    return torch.ops.mkldnn._linear_pointwise(a, dense.mT, bias, "none", [], "")
