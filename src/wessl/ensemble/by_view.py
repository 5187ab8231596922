"""The loss of training with its gradient, a few views at a time: never the logits of all."""

from typing import Any

import torch
from torch import Tensor

from wessl.ensemble.checks import common_dtype, positive
from wessl.ensemble.heads import EnsembleHeads
from wessl.ensemble.loss import Lessons, check_views, sum_of
from wessl.ensemble.parts import views_together
from wessl.ensemble.weighting import Weighting


def multiview_loss_by_view(
    heads: EnsembleHeads,
    representations: Tensor,
    student_temperature: float | Tensor,
    teacher_probs_umnc: Tensor,
    weighting: str | Weighting = "ent",
    temperature: float | Tensor | None = None,
    same_views: bool = True,
) -> Tensor:
    """``multiview_loss`` of ``heads(representations) / student_temperature``, views first.

    ``representations`` are ``(V n, in_dim)``, view by view. A view's gradient needs nothing of the
    other views, so it is computed with its loss, while its logits are there, and taken back as far
    as the embeddings and codes: what is kept for backward is as large as these. There is no second
    derivative, no gradient of the student's temperature, and nothing for ``torch.func``:
    ``multiview_loss`` has all three.

    >>> heads = EnsembleHeads(384, num_heads=16, num_codes=1024)
    >>> teacher_probs = torch.randn(2, 16, 8, 1024).softmax(-1)
    >>> multiview_loss_by_view(heads, torch.randn(12 * 8, 384), 0.1, teacher_probs).shape
    torch.Size([])
    """
    n, views = count_views(representations, teacher_probs_umnc)
    if isinstance(student_temperature, Tensor) and student_temperature.requires_grad:
        raise ValueError("the student's temperature gets no gradient here: use multiview_loss")
    tau = positive(student_temperature)
    check_views((views, heads.num_heads, n, heads.num_codes), teacher_probs_umnc, same_views)
    embeddings, codes = heads.embed(representations), heads.codes()
    teachers = teacher_probs_umnc.to(common_dtype(codes, teacher_probs_umnc))
    lessons = Lessons(teachers, views, weighting, temperature, same_views)
    together = views_together(heads.num_heads, heads.num_codes, n)
    wanted = [torch.is_grad_enabled() and x.requires_grad for x in (embeddings, codes)]
    losses: list[Tensor] = []
    of_embeddings: list[Tensor] = []
    of_codes: list[Tensor] = []  # one sum that grows
    with torch.no_grad():
        for first in range(0, views, together):
            part = embeddings[:, first * n : (first + together) * n]
            if losses and torch.compiler.is_compiling():
                part = _after(part, [losses[-1], *of_embeddings[-1:], *of_codes])
            found, slopes = of_part(lessons, first, heads.cosines(part, codes) / tau, any(wanted))
            losses.append(found)
            if not slopes:
                continue
            slope = torch.cat(slopes, dim=1).to(codes.dtype)
            del slopes
            if wanted[0]:
                of_embeddings.append(heads.gradient_of_embeddings(slope, codes))
            if wanted[1]:
                more = heads.gradient_of_codes(slope, part)
                of_codes = [of_codes[0] + more if of_codes else more]
    loss = lessons.mean(losses)
    if not any(wanted):
        return loss
    gradients = (
        torch.cat(of_embeddings, dim=1) if of_embeddings else None,
        of_codes[0] if of_codes else None,
    )
    return _WithGradients.apply(loss, embeddings, codes, *gradients, 1 / (tau * lessons.terms))


def of_part(
    lessons: Lessons, first: int, logits_mnc: Tensor, learnt: bool
) -> tuple[Tensor, list[Tensor]]:
    """Of the views from ``first`` on, end to end: their losses' sum, and its gradient by view."""
    views = enumerate(logits_mnc.split(lessons.pictures, dim=1), first)
    if not learnt:
        return sum_of([lessons.of_view(v, z_mnc) for v, z_mnc in views]), []
    found = [lessons.with_slope(v, z_mnc) for v, z_mnc in views]
    return sum_of([loss for loss, _ in found]), [slope for _, slope in found]


def count_views(representations: Tensor, teacher_probs_umnc: Tensor) -> tuple[int, int]:
    """Pictures, and views of them."""
    if representations.dim() != 2:
        raise ValueError(
            f"representations must be (V n, in_dim), view by view, not "
            f"{tuple(representations.shape)}"
        )
    n = teacher_probs_umnc.shape[2] if teacher_probs_umnc.dim() == 4 else 1
    views, rest = len(representations) // max(n, 1), len(representations) % max(n, 1)
    if rest:
        raise ValueError(
            f"{len(representations)} representations are no whole number of views: the teacher's "
            f"have {n} pictures each"
        )
    return n, views


@torch.library.custom_op("wessl::after", mutates_args=())
def _after(x: Tensor, done: list[Tensor]) -> Tensor:
    """A copy of ``x`` that a compiler must not make before the others are there.

    It would rather have all parts' logits first, to read the targets that they share once.
    """
    return x.clone(memory_format=torch.contiguous_format)


@_after.register_fake
def _(x: Tensor, done: list[Tensor]) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


class _WithGradients(torch.autograd.Function):
    """A loss whose gradients are known, but for a factor; None where nobody wants one."""

    @staticmethod
    def forward(
        ctx: Any,
        loss: Tensor,
        embeddings: Tensor,
        codes: Tensor,
        of_embeddings: Tensor | None,
        of_codes: Tensor | None,
        scale: float | Tensor,
    ) -> Tensor:
        ctx.save_for_backward(of_embeddings, of_codes)
        ctx.scale = scale
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError("this loss has no second derivative; multiview_loss has")
        factor = ctx.scale * gradients[0]
        known = [None if one is None else factor * one for one in ctx.saved_tensors]
        return None, *known, None, None, None
