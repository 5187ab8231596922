"""All device work of a training step, as free functions: the compile units.

The teacher turns the global views into targets, in two functions because the second needs the
whole batch even when the first sees it in parts; the student learns them from every other view.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from wessl.config import LossConfig
from wessl.ensemble.by_view import multiview_loss_by_view
from wessl.ensemble.collective import Group
from wessl.ensemble.loss import head_shares, multiview_loss
from wessl.ensemble.targets import Centering, me_max, sharpen, sinkhorn
from wessl.pretrain.model import Model


@dataclass
class Views:
    """One batch as the networks take it."""

    n: int
    """Pictures."""
    teacher: list[Tensor]
    """The teacher's views: one tensor a resolution, ``(views n, ch, h, w)``, view-major."""
    student: list[Tensor]
    keep: list[Tensor | None] | None = None
    """Patches the student keeps of each of its tensors; None keeps all."""
    drop: list[Tensor | None] | None = None
    """Uniform draws for the student's drop-path."""


@torch.no_grad()
def teacher_logits(teacher: Model, views: list[Tensor], n: int) -> tuple[Tensor, Tensor]:
    """Representations ``(U n, dim)`` and cosines ``(U, M, N, C)`` of the teacher's views."""
    representations = teacher.represent(views)
    return representations, teacher.score(representations, n)


@torch.no_grad()
def teacher_targets(
    cosines_umnc: Tensor,
    loss: LossConfig,
    temperature: float | Tensor,
    centering: Centering | None = None,
    group: Group | None = None,
) -> Tensor:
    """Targets ``(U, M, N, C)``: all views of the batch re-normalised together, each head alone."""
    u, m, n, c = cosines_umnc.shape
    cosines = cosines_umnc.transpose(0, 1).reshape(m, u * n, c)
    if loss.target == "sinkhorn":
        targets = sinkhorn(cosines, temperature, group=group)
    elif centering is not None:
        targets = centering(cosines, temperature, group)
    else:
        targets = sharpen(cosines, temperature)
    return targets.unflatten(1, (u, n)).transpose(0, 1)


@torch.no_grad()
def chosen_codes(loss: LossConfig, cosines_umnc: Tensor, targets_umnc: Tensor) -> Tensor:
    """The likeliest code ``(U, M, N)`` of every view, by the teacher as it is.

    Sinkhorn would spread even a collapsed one over all codes; a centre is part of what it says.
    """
    return (cosines_umnc if loss.target == "sinkhorn" else targets_umnc).argmax(-1)


def student_step(
    student: Model,
    views: Views,
    targets_umnc: Tensor,
    loss: LossConfig,
    gamma: float | Tensor,
    same_views: bool = True,
    group: Group | None = None,
) -> tuple[Tensor, Tensor]:
    """The loss to minimise, and its two parts for the log, ``(cross-entropy, me-max)``."""
    representations = student.represent(views.student, views.keep, views.drop)
    lesson = targets_umnc, loss.weighting, gamma, same_views
    if loss.me_max == 0:
        cross_entropy = multiview_loss_by_view(
            student.heads, representations, loss.student_temperature, *lesson
        )
        return cross_entropy, torch.stack([cross_entropy, cross_entropy.new_zeros(())]).detach()
    logits_vmnc = student.score(representations, views.n) / loss.student_temperature
    cross_entropy = multiview_loss(logits_vmnc, *lesson)
    probabilities = logits_vmnc.transpose(0, 1).flatten(1, 2).softmax(-1)
    weights = None
    if loss.weighs_me_max(student.heads.num_heads):
        weights = head_shares(logits_vmnc, *lesson, group=group)
    regulariser = me_max(probabilities, group=group, weights=weights)
    total = cross_entropy + loss.me_max * regulariser
    return total, torch.stack([cross_entropy, regulariser]).detach()
