"""Sums over a process group, with a gradient; without a group they do nothing."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

Group = dist.ProcessGroup


class _AllSum(torch.autograd.Function):
    """All processes add their tensors; backward adds their gradients likewise.

    Each process then holds the gradient of the *sum* of all processes' losses, which is what data
    parallelism, averaging gradients over processes, turns into that of the one global loss.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.group = group
        total = x.clone()
        dist.all_reduce(total, op=dist.ReduceOp.SUM, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        total = grads[0].clone()
        dist.all_reduce(total, op=dist.ReduceOp.SUM, group=ctx.group)
        return total, None


def all_sum(x: Tensor, group: Group | None) -> Tensor:
    return x if group is None else _AllSum.apply(x, group)


def all_mean(x_mnc: Tensor, group: Group | None) -> Tensor:
    """Mean over the images (axis 1) of all processes, which may hold different numbers of them."""
    if group is None:
        return x_mnc.mean(1)
    count = torch.tensor(float(x_mnc.shape[1]), dtype=x_mnc.dtype, device=x_mnc.device)
    return all_sum(x_mnc.sum(1), group) / all_sum(count, group)


@torch.no_grad()
def all_logsumexp(x_mnc: Tensor, group: Group | None) -> Tensor:
    """Log-sum-exp over the images (axis 1) of all processes, ``(m, 1, c)``; two reductions."""
    local = x_mnc.logsumexp(1, keepdim=True)
    if group is None:
        return local
    top = local.clone()
    dist.all_reduce(top, op=dist.ReduceOp.MAX, group=group)
    return top + all_sum((local - top).exp(), group).log()
