"""The loss of training for codebooks so large that the logits of all views do not fit."""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from wessl.ensemble.heads import EnsembleHeads
from wessl.ensemble.loss import Lessons
from wessl.ensemble.weighting import Weighting

AT_ONCE = 2**29
"""Bytes of logits up to which all views are held at once."""


def too_large(heads: EnsembleHeads, count: int) -> bool:
    """Whether the logits of ``count`` representations should be held view by view."""
    return 4 * heads.num_heads * heads.num_codes * count > AT_ONCE


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

    Backward computes a view's logits again, so that only one view's exist at any time: with V views
    a V-th of the memory, for one product with the codes more.
    """
    n = teacher_probs_umnc.shape[2]
    embeddings, codes = heads.embed(representations), heads.codes()
    views = embeddings.unflatten(1, (-1, n)).unbind(1)
    dtype = torch.promote_types(embeddings.dtype, teacher_probs_umnc.dtype)
    teachers = teacher_probs_umnc.to(dtype)
    lessons = Lessons(teachers, len(views), weighting, temperature, same_views)

    def of_view(v: int, embedding_mnd: Tensor, codes: Tensor) -> Tensor:
        return lessons.of_view(v, heads.cosines(embedding_mnd, codes) / student_temperature)

    return lessons.mean(
        [
            checkpoint(of_view, v, view, codes, use_reentrant=False, preserve_rng_state=False)
            for v, view in enumerate(views)
        ]
    )
