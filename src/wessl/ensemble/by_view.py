"""The loss of training one view at a time, where the logits of all would take much memory."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from wessl.ensemble.heads import EnsembleHeads
from wessl.ensemble.loss import Lessons
from wessl.ensemble.weighting import Weighting

AT_ONCE = {"cuda": 2**28, "cpu": 2**29}
"""Bytes of logits up to which all views are held at once; computing them twice costs a CPU more."""


def too_large_at_once(heads: EnsembleHeads, n: int, views: int, device: str = "cpu") -> bool:
    """Whether the logits of ``views`` of ``n`` pictures should not be held together."""
    logits = 4 * heads.num_heads * heads.num_codes * n * views
    return logits > AT_ONCE.get(device, AT_ONCE["cpu"])


def multiview_loss_by_view(
    heads: EnsembleHeads,
    representations: Tensor,
    student_temperature: float,
    teacher_probs_umnc: Tensor,
    weighting: str | Weighting = "ent",
    temperature: float | Tensor | None = None,
    same_views: bool = True,
) -> Tensor:
    """``multiview_loss`` of ``heads(representations) / student_temperature``, views first.

    Backward computes the logits of a view again, so that only one view's exist at any time. The
    codes go from view to view, so that their gradient is one sum that grows.
    """
    n = teacher_probs_umnc.shape[2]
    embeddings, codes = heads.embed(representations), heads.codes()
    teachers = teacher_probs_umnc.to(torch.promote_types(codes.dtype, teacher_probs_umnc.dtype))
    lessons = Lessons(teachers, len(representations) // n, weighting, temperature, same_views)

    def of_view(v: int, view: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
        multiply = HandingOn(weight)
        logits_mnc = heads.cosines(view, codes, multiply) / student_temperature
        return lessons.of_view(v, logits_mnc), multiply.weight

    losses: list[Tensor] = []
    weight: Tensor | None = None
    for v, view in enumerate(embeddings.split(n, dim=1)):
        loss, weight = checkpoint(
            of_view, v, view, weight, use_reentrant=False, preserve_rng_state=False
        )
        losses.append(loss)
    return lessons.mean(losses)


class HandingOn:
    """The product of a view with the weight that the view before handed on; at first its own."""

    def __init__(self, weight: Tensor | None):
        self.weight = weight

    def __call__(self, x: Tensor, weight: Tensor) -> Tensor:
        self.weight = weight if self.weight is None else self.weight
        if not self.weight.requires_grad:
            return x @ self.weight
        product, self.weight = _MultiplyAndHandOn.apply(x, self.weight)
        return product


class _MultiplyAndHandOn(torch.autograd.Function):
    """``x @ weight``, and the weight for the next view.

    Backward, the gradient of all later views comes back with it, and this one's is added to it
    within its own product. Summed by autograd, all views' gradients would wait for the last one.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, weight)
        return x @ weight, weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        of_product, of_later = gradients
        add = torch.addmm if x.dim() == 2 else torch.baddbmm
        return of_product @ weight.mT, add(of_later, x.mT, of_product)
