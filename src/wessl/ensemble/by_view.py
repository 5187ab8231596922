"""The loss of training a few views at a time, where what all need would take much memory."""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from wessl.ensemble.heads import EnsembleHeads
from wessl.ensemble.loss import Lessons, sum_of
from wessl.ensemble.weighting import Weighting

AT_ONCE = {"cuda": 2**27, "cpu": 2**29}
"""Bytes of logits up to which all views are held at once; computing them twice costs a CPU more."""
OF_A_PART = 2**26
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

    Backward computes heads and logits again, ``at_once`` views at a time, so that only theirs exist
    at any time. Batch norm wants all views together: with it, only the logits are computed again.
    """
    n = teacher_probs_umnc.shape[2]
    codes = heads.codes()
    teachers = teacher_probs_umnc.to(torch.promote_types(codes.dtype, teacher_probs_umnc.dtype))
    lessons = Lessons(teachers, len(representations) // n, weighting, temperature, same_views)
    norms_over_views = heads.batch_norm
    whole = heads.embed(representations) if norms_over_views else representations

    def of_part(first: int, part: Tensor, codes: Tensor) -> Tensor:
        embeddings = part if norms_over_views else heads.embed(part)
        logits = heads.cosines(embeddings, codes) / student_temperature
        views = logits.unflatten(1, (-1, n)).unbind(1)
        return sum_of([lessons.of_view(v, z_mnc) for v, z_mnc in enumerate(views, first)])

    def again_backward(first: int, part: Tensor) -> Tensor:
        return checkpoint(
            of_part, first, part, codes, use_reentrant=False, preserve_rng_state=False
        )

    parts = whole.split(at_once * n, dim=-2)
    return lessons.mean([again_backward(i * at_once, part) for i, part in enumerate(parts)])
