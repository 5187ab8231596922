"""The loss of training with its gradient, a few views at a time: never the logits of all."""

from typing import Any

import torch
from torch import Tensor

from wessl.ensemble.heads import EnsembleHeads
from wessl.ensemble.loss import Lessons, check_views, sum_of
from wessl.ensemble.parts import views_together
from wessl.ensemble.weighting import Weighting


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

    A view's gradient needs nothing of the other views, so it is computed with its loss, while its
    logits are there, and taken back as far as the embeddings and codes: what is kept for backward
    is as large as these. There is no second derivative.

    >>> heads = EnsembleHeads(384, num_heads=16, num_codes=1024)
    >>> teacher_probs = torch.randn(2, 16, 8, 1024).softmax(-1)
    >>> multiview_loss_by_view(heads, torch.randn(12 * 8, 384), 0.1, teacher_probs).shape
    torch.Size([])
    """
    n = teacher_probs_umnc.shape[2] if teacher_probs_umnc.dim() == 4 else 1
    views, rest = divmod(len(representations), max(n, 1))
    if rest:
        raise ValueError(f"{len(representations)} rows are no whole views of {n} pictures")
    check_views((views, heads.num_heads, n, heads.num_codes), teacher_probs_umnc, same_views)
    embeddings, codes = heads.embed(representations), heads.codes()
    teachers = teacher_probs_umnc.to(torch.promote_types(codes.dtype, teacher_probs_umnc.dtype))
    lessons = Lessons(teachers, views, weighting, temperature, same_views)

    def of_part(part: Tensor, first: int) -> tuple[Tensor, Tensor, Tensor | None]:
        logits = heads.cosines(part, codes) / student_temperature
        found = [lessons.with_slope(v, z) for v, z in enumerate(logits.split(n, dim=1), first)]
        losses, slopes = zip(*found, strict=True)
        del logits, found
        slope = torch.cat(slopes, dim=1).to(codes.dtype)
        del slopes
        return sum_of(losses), *heads.cosines_backward(slope, part, codes)

    losses: list[Tensor] = []
    of_embeddings: list[Tensor] = []
    of_codes: Tensor | None = None
    together = views_together(heads.num_heads, heads.num_codes, n)
    with torch.no_grad():
        for first in range(0, views, together):
            part = embeddings[:, first * n : (first + together) * n]
            if first and torch.compiler.is_compiling():
                part = _after(part, of_embeddings[-1], of_codes)
            loss, of_its_embeddings, more = of_part(part, first)
            losses.append(loss)
            of_embeddings.append(of_its_embeddings)
            of_codes = more if more is None or of_codes is None else of_codes + more
    scale = 1 / (student_temperature * lessons.terms)
    gradients = torch.cat(of_embeddings, dim=1), of_codes
    return _WithGradients.apply(lessons.mean(losses), embeddings, codes, *gradients, scale)


@torch.library.custom_op("wessl::after", mutates_args=())
def _after(x: Tensor, done: Tensor, also_done: Tensor | None) -> Tensor:
    """A copy of ``x`` that a compiler must not make before the others are there.

    It would rather have all parts' logits first, to read the targets that they share once.
    """
    return x.clone(memory_format=torch.contiguous_format)


@_after.register_fake
def _(x: Tensor, done: Tensor, also_done: Tensor | None) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


class _WithGradients(torch.autograd.Function):
    """A loss whose gradients are known, but for a factor."""

    @staticmethod
    def forward(
        ctx: Any,
        loss: Tensor,
        embeddings: Tensor,
        codes: Tensor,
        of_embeddings: Tensor,
        of_codes: Tensor | None,
        scale: float,
    ) -> Tensor:
        ctx.save_for_backward(of_embeddings, of_codes)
        ctx.scale = scale
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError("this loss has no second derivative; multiview_loss has")
        of_embeddings, of_codes = ctx.saved_tensors
        factor = ctx.scale * gradients[0]
        of_codes = None if of_codes is None else factor * of_codes
        return None, factor * of_embeddings, of_codes, None, None, None
