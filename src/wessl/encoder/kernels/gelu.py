# mypy: allow-untyped-defs, allow-incomplete-defs
"""GELU, exact, after a linear layer; its gradient is summed for the layer's bias on the way."""

from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # without CUDA
    triton = None

_BLOCK = 2048
_COLUMNS, _AT_ONCE = 128, 16
"""What one program of the gradient sums, and how many rows it holds: the best of those measured."""


def rows_of_program(rows: int, columns: int) -> int:
    """256 rows, the best of those measured; fewer where much of the device would have nothing."""
    lot = 256
    while lot > 32 and rows * columns < 1024 * lot * _COLUMNS:
        lot //= 2
    return lot


def apply(x: Tensor, bias: Tensor) -> Tensor:
    """``F.gelu(x)``. ``bias`` was added to ``x`` already; here it gets its gradient."""
    return _gelu(x.contiguous(), bias)


def forward(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), _BLOCK),)
    _forward_kernel[grid](x, out, x.numel(), _BLOCK)
    return out


def backward(x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """The gradient of ``x (..., columns)``, and its sums over parts of the rows."""
    grad_x, sums = _empty_gradients(x)
    parts, columns = sums.shape
    rows = x.numel() // columns
    _backward_kernel[(parts, triton.cdiv(columns, _COLUMNS))](
        x, grad, grad_x, sums, rows, columns, rows_of_program(rows, columns), _COLUMNS, _AT_ONCE
    )
    return grad_x, sums


def _empty_gradients(x: Tensor) -> tuple[Tensor, Tensor]:
    """What ``backward`` fills."""
    columns = x.shape[-1]
    rows = x.numel() // columns
    parts = triton.cdiv(rows, rows_of_program(rows, columns))
    sums = torch.empty((parts, columns), dtype=torch.float32, device=x.device)
    return torch.empty_like(x), sums


if triton is not None:

    @triton.jit
    def _normal(x):
        """The normal distribution at x, and its density times x.

        As 1 / (1 + e^-u) with u odd in x, fitted to it and to GELU's slope together: GELU within
        5e-6 and its slope within 1.2e-5, far under a half-precision rounding, by one exponential
        where the error function wants a series beside it. Beyond 8 all of it is 0 or 1.
        """
        x2 = tl.minimum(x * x, 64.0)
        u = 2.509190368e-6 * x2 - 6.581418986e-5
        u = (((u * x2 - 2.260478298e-4) * x2 + 7.290046402e-2) * x2 + 1.595659846) * x
        below = 1 / (1 + tl.exp(-u))
        slope = 2.258271331e-5 * x2 - 4.606993290e-4
        slope = ((slope * x2 - 1.130239149e-3) * x2 + 2.187013921e-1) * x2 + 1.595659846
        return below, x * slope * below * (1 - below)

    @triton.jit
    def _forward_kernel(x, out, size, BLOCK: tl.constexpr):
        at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        value = tl.load(x + at, mask=at < size, other=0.0).to(tl.float32)
        below, _ = _normal(value)
        tl.store(out + at, (value * below).to(out.dtype.element_ty), mask=at < size)

    @triton.jit
    def _backward_kernel(
        x, grad, grad_x, sums, rows, columns,
        ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        """``grad`` times GELU's slope, and its sums over ROWS rows each."""
        column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        total = tl.zeros((BLOCK, COLUMNS), tl.float32)
        for start in range(0, ROWS, BLOCK):
            row = tl.program_id(0) * ROWS + start + tl.arange(0, BLOCK)
            at = row.to(tl.int64)[:, None] * columns + column[None, :]
            mask = (row[:, None] < rows) & (column[None, :] < columns)
            value = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
            below, change = _normal(value)
            result = (below + change) * tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
            tl.store(grad_x + at, result.to(grad_x.dtype.element_ty), mask=mask)
            total += result
        at = sums + tl.program_id(0) * columns + column
        tl.store(at, tl.sum(total, 0), mask=column < columns)

    @torch.library.custom_op("wessl::gelu", mutates_args=())
    def _gelu(x: Tensor, bias: Tensor) -> Tensor:
        return forward(x)

    @torch.library.custom_op("wessl::gelu_backward", mutates_args=())
    def _gelu_backward(x: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
        return backward(x, grad)

    _gelu.register_fake(lambda x, bias: torch.empty_like(x))
    _gelu_backward.register_fake(lambda x, grad: _empty_gradients(x))

    def _save(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])

    def _gradient(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        (x,) = ctx.saved_tensors
        grad_x, sums = _gelu_backward(x, grad.contiguous())
        return grad_x, sums.sum(0)

    _gelu.register_autograd(_gradient, setup_context=_save)
