"""The loss of training a few views at a time, where what all need would take much memory."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from wessl.ensemble.heads import EnsembleHeads
from wessl.ensemble.loss import Lessons, sum_of
from wessl.ensemble.weighting import Weighting

AT_ONCE = {"cuda": 2**28, "cpu": 2**29}
"""Bytes of logits up to which all views are held at once; computing them twice costs a CPU more."""
OF_A_PART = 2**25
"""Bytes of logits that are held at once otherwise, or those of one view."""


def views_at_once(heads: EnsembleHeads, n: int, views: int, device: str = "cpu") -> int:
    """How many of the ``views`` of ``n`` pictures should have their logits held together."""
    of_view = 4 * heads.num_heads * heads.num_codes * n
    limit = AT_ONCE.get(device, AT_ONCE["cpu"])
    return views if views * of_view <= limit else max(1, OF_A_PART // of_view)


def multiview_loss_by_view(
    heads: EnsembleHeads,
    representations: Tensor,
    student_temperature: float,
    teacher_probs_umnc: Tensor,
    weighting: str | Weighting = "ent",
    temperature: float | Tensor | None = None,
    same_views: bool = True,
    at_once: int = 1,
) -> Tensor:
    """``multiview_loss`` of ``heads(representations) / student_temperature``, views first.

    Backward computes logits again, ``at_once`` views at a time, so that only theirs exist at any
    time. The codes go from part to part, so that their gradient is one sum that grows.
    """
    n = teacher_probs_umnc.shape[2]
    embeddings, codes = heads.embed(representations), heads.codes()
    teachers = teacher_probs_umnc.to(torch.promote_types(codes.dtype, teacher_probs_umnc.dtype))
    lessons = Lessons(teachers, len(representations) // n, weighting, temperature, same_views)

    def of_part(first: int, part: Tensor, weight: Tensor | None) -> tuple[Tensor, Tensor | None]:
        multiply = HandingOn(weight)
        logits = heads.cosines(part, codes, multiply) / student_temperature
        views = logits.unflatten(1, (-1, n)).unbind(1)
        loss = sum_of([lessons.of_view(v, z_mnc) for v, z_mnc in enumerate(views, first)])
        return loss, multiply.weight

    losses: list[Tensor] = []
    weight: Tensor | None = None
    for i, part in enumerate(embeddings.split(at_once * n, dim=1)):
        loss, weight = checkpoint(
            of_part, i * at_once, part, weight, use_reentrant=False, preserve_rng_state=False
        )
        losses.append(loss)
    return lessons.mean(losses)


class HandingOn:
    """The product of a part with the weight that the part before handed on; at first its own."""

    def __init__(self, weight: Tensor | None):
        self.weight = weight

    def __call__(self, x: Tensor, weight: Tensor) -> Tensor:
        self.weight = weight if self.weight is None else self.weight
        if not self.weight.requires_grad:
            return x @ self.weight
        product, self.weight = _MultiplyAndHandOn.apply(x, self.weight)
        return product


class _MultiplyAndHandOn(torch.autograd.Function):
    """``x @ weight``, and the weight for the next part.

    Backward, the gradient of all later parts comes back with it, and this part's is added to it
    within its own product. Summed by autograd, all parts' gradients would wait for the last one.
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
