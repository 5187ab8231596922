# mypy: allow-untyped-defs, allow-incomplete-defs
"""The end of a residual branch and the norm after it, in one pass over the tokens.

Forward adds the branch, scaled by drop-path, to the stream and normalises the sum. Backward gives
both gradients and sums, while it has them in hand, those of the norm and of the bias of the linear
layer that ended the branch.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # without CUDA
    triton = None


class Cut(NamedTuple):
    """How tokens are shared out: to one program, of which so many at once, by so many warps."""

    of_program: int
    at_once: int
    warps: int


FORWARD = Cut(4, 4, 4)


def backward_cut(dim: int, rows: int) -> Cut:
    """The best of those measured at 384 channels: one token at a time, a warp for 512 channels.

    Few tokens are shared out in smaller lots, or most of the device would have nothing to do.
    """
    lot = 64
    while lot > 8 and rows < 2048 * lot:
        lot //= 2
    return Cut(lot, 1, max(1, _power(dim) // 512))


def apply(
    x: Tensor,
    branch: Tensor,
    scale: Tensor | None,
    bias: Tensor,
    weight: Tensor,
    shift: Tensor,
    eps: float,
) -> tuple[Tensor, Tensor]:
    """``y = x + scale branch`` and ``F.layer_norm(y, (dim,), weight, shift, eps)``.

    ``x`` and ``branch`` are ``(b, n, dim)`` or ``(T, dim)``, ``scale`` one number in fp32 for each
    ``x[i]`` (None: 1). ``bias`` was added to ``branch`` already; here it gets its gradient.
    """
    factors = None if scale is None else scale.contiguous()
    y, normed, _, _ = _add_norm(
        x.contiguous(), branch.contiguous(), factors, bias, weight, shift, eps
    )
    return y, normed


def forward(
    x: Tensor,
    branch: Tensor,
    scale: Tensor | None,
    weight: Tensor,
    shift: Tensor,
    eps: float,
    cut: Cut = FORWARD,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sum and norm ``(..., dim)``; for ``backward`` each token's mean and inverse deviation."""
    y, normed, mean, inverse = _empty_results(x, branch)
    rows, dim = len(mean), x.shape[-1]
    _forward_kernel[(triton.cdiv(rows, cut.at_once),)](
        x, branch, x if scale is None else scale, weight, shift, y, normed, mean, inverse,
        rows, _together(rows, scale), dim, _power(dim), eps, cut.at_once, scale is not None,
        num_warps=cut.warps,
    )  # fmt: skip
    return y, normed, mean, inverse


def backward(
    grad_y: Tensor,
    grad_normed: Tensor,
    y: Tensor,
    mean: Tensor,
    inverse: Tensor,
    scale: Tensor | None,
    weight: Tensor,
    cut: Cut | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of ``x`` and ``branch``, and sums ``(parts, 3, dim)`` for weight, shift, bias.

    Without a scale the two gradients are the same, and the second stays empty.
    """
    rows, dim = y.numel() // y.shape[-1], y.shape[-1]
    cut = cut or backward_cut(dim, rows)
    grad_x, grad_branch, sums = _empty_gradients(grad_normed, y, scale, cut)
    _backward_kernel[(len(sums),)](
        grad_y, grad_normed, y, mean, inverse, y if scale is None else scale, weight,
        grad_x, grad_branch, sums, rows, _together(rows, scale), dim, _power(dim),
        cut.of_program, cut.at_once, scale is not None, num_warps=cut.warps,
    )  # fmt: skip
    return grad_x, grad_branch, sums


def _empty_results(x: Tensor, branch: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What ``forward`` fills."""
    mean = torch.empty(x.numel() // x.shape[-1], dtype=torch.float32, device=x.device)
    return torch.empty_like(x), torch.empty_like(branch), mean, torch.empty_like(mean)


def _empty_gradients(
    grad_normed: Tensor, y: Tensor, scale: Tensor | None, cut: Cut | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """What ``backward`` fills."""
    rows, dim = y.numel() // y.shape[-1], y.shape[-1]
    of_branch = torch.empty_like(grad_normed) if scale is not None else y.new_empty(0)
    parts = triton.cdiv(rows, (cut or backward_cut(dim, rows)).of_program)
    sums = torch.empty((parts, 3, dim), dtype=torch.float32, device=y.device)
    return torch.empty_like(y), of_branch, sums


def _together(rows: int, scale: Tensor | None) -> int:
    """Successive tokens that share a number of ``scale``."""
    return 1 if scale is None else rows // len(scale)


def _power(dim: int) -> int:
    return 1 << (dim - 1).bit_length()


if triton is not None:

    @triton.jit
    def _forward_kernel(
        x, branch, scale, weight, shift, y, normed, mean, inverse, rows, n,
        DIM: tl.constexpr, BLOCK: tl.constexpr, EPS: tl.constexpr, ROWS: tl.constexpr,
        SCALED: tl.constexpr,
    ):  # fmt: skip
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        column = tl.arange(0, BLOCK)
        at = row.to(tl.int64)[:, None] * DIM + column[None, :]
        mask = (row[:, None] < rows) & (column[None, :] < DIM)
        addend = tl.load(branch + at, mask=mask, other=0.0).to(tl.float32)
        if SCALED:
            addend *= tl.load(scale + row // n, mask=row < rows, other=0.0)[:, None]
        total = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) + addend
        # What the norm sees is the stream as it is kept, rounded.
        kept = total.to(y.dtype.element_ty)
        tl.store(y + at, kept, mask=mask)
        value = kept.to(tl.float32)
        middle = tl.sum(value, 1) / DIM
        apart = tl.where(column[None, :] < DIM, value - middle[:, None], 0.0)
        over = 1 / tl.sqrt(tl.sum(apart * apart, 1) / DIM + EPS)
        gain = tl.load(weight + column, mask=column < DIM, other=0.0).to(tl.float32)
        level = tl.load(shift + column, mask=column < DIM, other=0.0).to(tl.float32)
        out = apart * over[:, None] * gain[None, :] + level[None, :]
        tl.store(normed + at, out.to(normed.dtype.element_ty), mask=mask)
        tl.store(mean + row, middle, mask=row < rows)
        tl.store(inverse + row, over, mask=row < rows)

    @triton.jit
    def _backward_kernel(
        grad_y, grad_normed, y, mean, inverse, scale, weight, grad_x, grad_branch, sums, rows, n,
        DIM: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr, AT_ONCE: tl.constexpr,
        SCALED: tl.constexpr,
    ):  # fmt: skip
        """ROWS tokens, AT_ONCE at a time; sums stay spread over those until the end."""
        column = tl.arange(0, BLOCK)
        gain = tl.load(weight + column, mask=column < DIM, other=0.0).to(tl.float32)
        of_weight = tl.zeros((AT_ONCE, BLOCK), tl.float32)
        of_shift = tl.zeros((AT_ONCE, BLOCK), tl.float32)
        of_bias = tl.zeros((AT_ONCE, BLOCK), tl.float32)
        for start in range(0, ROWS, AT_ONCE):
            row = tl.program_id(0) * ROWS + start + tl.arange(0, AT_ONCE)
            at = row.to(tl.int64)[:, None] * DIM + column[None, :]
            mask = (row[:, None] < rows) & (column[None, :] < DIM)
            g = tl.load(grad_normed + at, mask=mask, other=0.0).to(tl.float32)
            value = tl.load(y + at, mask=mask, other=0.0).to(tl.float32)
            result = tl.load(grad_y + at, mask=mask, other=0.0).to(tl.float32)
            middle = tl.load(mean + row, mask=row < rows, other=0.0)
            over = tl.load(inverse + row, mask=row < rows, other=0.0)
            unit = tl.where(mask, (value - middle[:, None]) * over[:, None], 0.0)
            of_weight += g * unit
            of_shift += g
            g *= gain[None, :]
            along = tl.sum(g * unit, 1) / DIM
            level = tl.sum(g, 1) / DIM
            slope = (g - unit * along[:, None] - level[:, None]) * over[:, None]
            result += tl.where(mask, slope, 0.0)
            tl.store(grad_x + at, result.to(grad_x.dtype.element_ty), mask=mask)
            if SCALED:
                result *= tl.load(scale + row // n, mask=row < rows, other=0.0)[:, None]
                tl.store(grad_branch + at, result.to(grad_branch.dtype.element_ty), mask=mask)
            of_bias += result
        to = sums + tl.program_id(0).to(tl.int64) * 3 * DIM + column
        tl.store(to, tl.sum(of_weight, 0), mask=column < DIM)
        tl.store(to + DIM, tl.sum(of_shift, 0), mask=column < DIM)
        tl.store(to + 2 * DIM, tl.sum(of_bias, 0), mask=column < DIM)

    @torch.library.custom_op("wessl::add_norm", mutates_args=())
    def _add_norm(
        x: Tensor,
        branch: Tensor,
        scale: Tensor | None,
        bias: Tensor,
        weight: Tensor,
        shift: Tensor,
        eps: float,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        return forward(x, branch, scale, weight, shift, eps)

    @torch.library.custom_op("wessl::add_norm_backward", mutates_args=())
    def _add_norm_backward(
        grad_y: Tensor,
        grad_normed: Tensor,
        y: Tensor,
        mean: Tensor,
        inverse: Tensor,
        scale: Tensor | None,
        weight: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        return backward(grad_y, grad_normed, y, mean, inverse, scale, weight)

    @_add_norm.register_fake
    def _(x: Tensor, branch: Tensor, *others: Any) -> Any:
        return _empty_results(x, branch)

    @_add_norm_backward.register_fake
    def _(grad_y: Any, grad_normed: Tensor, y: Tensor, mean: Any, inverse: Any, *rest: Any) -> Any:
        return _empty_gradients(grad_normed, y, rest[0])

    def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        y, _, mean, inverse = output
        ctx.save_for_backward(y, mean, inverse, inputs[2], inputs[4])
        ctx.mark_non_differentiable(mean, inverse)

    def _gradient(ctx: Any, grad_y: Tensor, grad_normed: Tensor, *_: Tensor) -> tuple[Any, ...]:
        y, mean, inverse, scale, weight = ctx.saved_tensors
        grad_x, grad_branch, sums = _add_norm_backward(
            grad_y.contiguous(), grad_normed.contiguous(), y, mean, inverse, scale, weight
        )
        of_weight, of_shift, of_bias = sums.sum(0).unbind(0)
        of_branch = grad_x if scale is None else grad_branch
        return grad_x, of_branch, None, of_bias, of_weight, of_shift, None

    _add_norm.register_autograd(_gradient, setup_context=_save)
