# mypy: allow-untyped-defs, allow-incomplete-defs
"""Attention over few tokens: packed queries, keys and values in, their packed gradient out.

A view has 37 to 257 tokens: too few for the libraries' kernels, which are made for thousands and
take queries, keys and values apart, so that their gradients must be packed together again. These
read ``(b, n, 3 dim)`` as the linear layer writes it and write its gradient likewise. Batches that
share a stream (``segments``) take a launch each, and share what is read and written.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from wessl.encoder.kernels import attention_kernels
from wessl.encoder.segments import Segments

try:
    import triton
except ImportError:  # without CUDA
    triton = None

AVAILABLE: bool = triton is not None


class Blocks(NamedTuple):
    """How a pass is cut: tokens of the side that stays, tokens of the side that goes past it."""

    outer: int
    inner: int
    warps: int
    stages: int


def fits(n: int, width: int) -> bool:
    """Whether the kernels serve n tokens and heads of this width; beyond, libraries' do better."""
    return n <= 512 and width in (16, 32, 64, 128)


def forward_blocks(n: int) -> Blocks:
    """The best of those measured: all tokens at once up to 64, else 64 at a time."""
    side = max(16, 1 << (n - 1).bit_length())
    return Blocks(side, side, 4, 2) if n <= 64 else Blocks(64, 64, 4, 3)


def backward_blocks(n: int) -> Blocks:
    """Likewise; beside up to 64 keys, registers hold 32 queries at a time."""
    side = max(16, 1 << (n - 1).bit_length())
    return Blocks(side, min(side, 32), 4, 2) if n <= 64 else Blocks(64, 64, 4, 3)


def apply(qkv: Tensor, bias: Tensor, heads: int, segments: Segments | None = None) -> Tensor:
    """``(b, n, dim)``, or with segments ``(T, dim)``.

    ``bias`` was added to ``qkv`` already; here it gets its gradient.
    """
    out, _ = _attention(qkv.contiguous(), bias, heads, *(segments or Segments.of(qkv)))
    return out


def forward(
    qkv: Tensor, heads: int, segments: Segments, blocks: Blocks | None = None
) -> tuple[Tensor, Tensor]:
    """Output ``(..., dim)`` and, for ``backward``, the logarithms (base 2) of the softmax sums."""
    out, log_sums = _empty_results(qkv, heads)
    dim = out.shape[-1]
    scale, row = (dim // heads) ** -0.5, 0
    for b, n in zip(*segments, strict=True):
        queries, keys, warps, stages = blocks or forward_blocks(n)
        grid = (b * heads * triton.cdiv(n, queries),)
        attention_kernels.forward_kernel[grid](
            qkv, out, log_sums, row, n, scale * math.log2(math.e), heads, dim // heads,
            queries, keys, num_warps=warps, num_stages=stages,
        )  # fmt: skip
        row += b * n
    return out, log_sums


def backward(
    qkv: Tensor,
    out: Tensor,
    grad: Tensor,
    log_sums: Tensor,
    heads: int,
    segments: Segments,
    blocks: Blocks | None = None,
) -> tuple[Tensor, Tensor]:
    """The gradient of ``qkv``, and its sums over parts of the tokens ``(parts, 3 dim)``."""
    grad_qkv, sums = _empty_gradients(qkv, segments, blocks)
    dim = out.shape[-1]
    scale, row, part = (dim // heads) ** -0.5, 0, 0
    for b, n in zip(*segments, strict=True):
        cut = blocks or backward_blocks(n)
        count = triton.cdiv(n, cut.outer)
        attention_kernels.backward_kernel[(b * heads * count,)](
            qkv, out, grad, log_sums, grad_qkv, sums, row, part, n, scale,
            scale * math.log2(math.e), heads, dim // heads, cut.outer, cut.inner, count == 1,
            num_warps=cut.warps, num_stages=cut.stages,
        )  # fmt: skip
        row, part = row + b * n, part + b * count
    return grad_qkv, sums


def _empty_results(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """What ``forward`` fills."""
    *tokens, width = qkv.shape
    log_sums = torch.empty(math.prod(tokens) * heads, dtype=torch.float32, device=qkv.device)
    return qkv.new_empty((*tokens, width // 3)), log_sums


def _empty_gradients(
    qkv: Tensor, segments: Segments, blocks: Blocks | None = None
) -> tuple[Tensor, Tensor]:
    """What ``backward`` fills."""
    parts = 0
    for b, n in zip(*segments, strict=True):
        parts += b * triton.cdiv(n, (blocks or backward_blocks(n)).outer)
    sums = torch.empty((parts, qkv.shape[-1]), dtype=torch.float32, device=qkv.device)
    return torch.empty_like(qkv), sums


if triton is not None:

    @torch.library.custom_op("wessl::attention", mutates_args=())
    def _attention(
        qkv: Tensor, bias: Tensor, heads: int, pictures: list[int], tokens: list[int]
    ) -> tuple[Tensor, Tensor]:
        return forward(qkv, heads, Segments(pictures, tokens))

    @torch.library.custom_op("wessl::attention_backward", mutates_args=())
    def _attention_backward(
        qkv: Tensor,
        out: Tensor,
        grad: Tensor,
        log_sums: Tensor,
        heads: int,
        pictures: list[int],
        tokens: list[int],
    ) -> tuple[Tensor, Tensor]:
        return backward(qkv, out, grad, log_sums, heads, Segments(pictures, tokens))

    @_attention.register_fake
    def _(qkv: Tensor, bias: Tensor, heads: int, pictures: Any, tokens: Any) -> Any:
        return _empty_results(qkv, heads)

    @_attention_backward.register_fake
    def _(qkv: Tensor, out: Any, grad: Any, log_sums: Any, heads: int, *cut: list[int]) -> Any:
        return _empty_gradients(qkv, Segments(*cut))

    def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        qkv, _, *ctx.cut = inputs
        out, log_sums = output
        ctx.save_for_backward(qkv, out, log_sums)
        ctx.mark_non_differentiable(log_sums)

    def _gradient(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Any, ...]:
        qkv, out, log_sums = ctx.saved_tensors
        grad_qkv, sums = _attention_backward(qkv, out, grad.contiguous(), log_sums, *ctx.cut)
        return grad_qkv, sums.sum(0), None, None, None

    _attention.register_autograd(_gradient, setup_context=_save)
