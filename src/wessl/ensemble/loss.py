"""The weighted cross-entropy losses, for one pair of views and for training's many.

Both fold the weighted teachers into one target per student head, then take one cross-entropy.
"""

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from wessl.ensemble.checks import common_dtype, refuse_other_than_probabilities
from wessl.ensemble.collective import Group, all_sum
from wessl.ensemble.weighting import (
    Scheme,
    Weighting,
    as_scheme,
    as_temperature,
    check_pair,
    compact_weights,
    finite,
    fold_teachers,
    student_probability,
)


def ensemble_loss(
    log_ps: Tensor,
    log_pt: Tensor,
    weighting: str | Weighting = "ent",
    temperature: float | Tensor | None = None,
) -> Tensor:
    """The paper's weighted cross-entropy of ``m`` teachers and ``m`` students, mean over images.

    ``log_ps`` and ``log_pt`` are ``(b, m, c)`` log-probabilities of student and teacher; the
    teacher and the weights get no gradient. ``temperature`` is gamma in nats; by default 1 for
    ``prob*`` and ``0.05 ln c`` for the others. In full, with ``w = ensemble_weights(...)``::

        loss = 0
        for b in images:
            for i in teachers:
                for j in students:
                    for y in codes:
                        loss -= w[b, i, j, y] * pt[b, i, y] * log_ps[b, j, y] / len(images)

    ``prob`` has the value of the cross-entropy of averages (Algorithm 1), and this gradient.

    >>> log_ps, log_pt = torch.randn(2, 8, 16, 128).log_softmax(-1)  # 8 images, 16 heads, 128 codes
    >>> ensemble_loss(log_ps, log_pt, "ent").shape
    torch.Size([])
    """
    log_ps, log_pt = check_pair(log_ps, log_pt)
    scheme = as_scheme(weighting)
    gamma = as_temperature(scheme, temperature, log_pt.shape[-1])
    with torch.autocast(log_ps.device.type, enabled=False):
        if is_cross_entropy_of_averages(scheme):
            q_bjy, log_ps = log_pt.exp().mean(1, keepdim=True), average_student(log_ps, gamma)
        else:
            weights = compact_weights(scheme, gamma, log_ps, log_pt)
            q_bjy = fold_teachers(weights, log_pt.exp(), scheme.aligned)
        return -torch.where(q_bjy == 0, 0.0, q_bjy * log_ps).sum((1, 2)).mean()


def multiview_loss(
    student_logits_vmnc: Tensor,
    teacher_probs_umnc: Tensor,
    weighting: str | Weighting = "ent",
    temperature: float | Tensor | None = None,
    same_views: bool = True,
) -> Tensor:
    """The loss of training: every student view learns from every teacher view but its own.

    ``V`` student views as finite logits (already divided by the student temperature), of which the
    first are the teacher's own ``U`` views, as probabilities; heads first. In full::

        pairs = [(u, v) for u in range(U) for v in range(V) if u != v]
        for u, v in pairs:
            log_ps, log_pt = student_logits[v].log_softmax(-1), teacher_probs[u].log()   # (m, n, c)
            log_ps, log_pt = log_ps.transpose(0, 1), log_pt.transpose(0, 1)              # (n, m, c)
            loss += ensemble_loss(log_ps, log_pt, weighting, temperature) / len(pairs)

    The code folds all teachers of a student view into one target first, so it takes ``V``
    cross-entropies, not ``2(V - 1)``. With ``same_views=False`` the teacher's views are no
    student's (the original MSN) and all ``U V`` pairs count.

    >>> student_logits = torch.randn(12, 16, 8, 128)                 # 2 global and 10 local views
    >>> teacher_probs = torch.randn(2, 16, 8, 128).softmax(-1)
    >>> multiview_loss(student_logits, teacher_probs, "ent").shape
    torch.Size([])
    """
    lessons = lessons_of(
        student_logits_vmnc, teacher_probs_umnc, weighting, temperature, same_views
    )
    # Unbound at once: taken one by one, compiled gradients of the views are padded and added up.
    views = student_logits_vmnc.unbind(0)
    return lessons.mean([lessons.of_view(v, z_mnc) for v, z_mnc in enumerate(views)])


@torch.no_grad()
def head_shares(
    student_logits_vmnc: Tensor,
    teacher_probs_umnc: Tensor,
    weighting: str | Weighting = "ent",
    temperature: float | Tensor | None = None,
    same_views: bool = True,
    group: Group | None = None,
) -> Tensor:
    """How much of ``multiview_loss`` is each student head's to learn: ``(m,)``, of sum 1.

    The sum of all that is taught to a head, ``w[b, i, j, y] pt[b, i, y]`` over images, teachers,
    codes and views; with a process ``group`` over all processes.

    >>> student_logits = torch.randn(12, 16, 8, 128)
    >>> teacher_probs = torch.randn(2, 16, 8, 128).softmax(-1)
    >>> head_shares(student_logits, teacher_probs, "ent").shape
    torch.Size([16])
    """
    lessons = lessons_of(
        student_logits_vmnc, teacher_probs_umnc, weighting, temperature, same_views
    )
    taught = [lessons.taught(v, z_mnc) for v, z_mnc in enumerate(student_logits_vmnc)]
    total = all_sum(sum_of(taught), group)
    return total / total.sum()


def lessons_of(
    student_logits_vmnc: Tensor,
    teacher_probs_umnc: Tensor,
    weighting: str | Weighting,
    temperature: float | Tensor | None,
    same_views: bool,
) -> "Lessons":
    """Of checked views, in the wider of their types."""
    check_views(tuple(student_logits_vmnc.shape), teacher_probs_umnc, same_views)
    teachers = teacher_probs_umnc.to(common_dtype(student_logits_vmnc, teacher_probs_umnc))
    return Lessons(teachers, len(student_logits_vmnc), weighting, temperature, same_views)


class Lessons:
    """What ``views`` student views learn from the teacher's: ``multiview_loss``, view by view."""

    def __init__(
        self,
        teacher_probs_umnc: Tensor,
        views: int,
        weighting: str | Weighting = "ent",
        temperature: float | Tensor | None = None,
        same_views: bool = True,
    ):
        self.scheme = as_scheme(weighting)
        self.gamma = as_temperature(self.scheme, temperature, teacher_probs_umnc.shape[-1])
        self.pictures = teacher_probs_umnc.shape[2]
        teachers_nmc = [t.detach().transpose(0, 1) for t in teacher_probs_umnc]
        self.teachers_of = [
            [u for u in range(len(teachers_nmc)) if not same_views or u != v] for v in range(views)
        ]
        self.terms = sum(map(len, self.teachers_of)) * self.pictures
        if self.terms == 0:
            raise ValueError("one view cannot learn from itself: give at least two student views")
        # Where the weights read no student, a teacher view's target serves every student view.
        with torch.autocast(teacher_probs_umnc.device.type, enabled=False):
            self.ready_nmc = [fold_before_student(self.scheme, self.gamma, t) for t in teachers_nmc]

    def of_view(self, v: int, logits_mnc: Tensor) -> Tensor:
        """The sum over pictures and teacher views of what student view ``v`` gets wrong."""
        ready, z_nmc = self._view(v, logits_mnc)
        if not ready:
            return z_nmc.new_zeros(())
        with torch.autocast(logits_mnc.device.type, enabled=False):
            if is_cross_entropy_of_averages(self.scheme):
                return self._of_averages(ready, z_nmc.log_softmax(-1))
            return cross_entropy(fold_with_student(self.scheme, self.gamma, z_nmc, ready), z_nmc)

    def with_slope(self, v: int, logits_mnc: Tensor) -> tuple[Tensor, Tensor]:
        """``of_view`` and its gradient ``(m, n, c)``: all that is taught times what is said, less
        what is taught. No weight is learnt from, so ``prob``'s averages have that form too."""
        ready, z_nmc = self._view(v, logits_mnc)
        if not ready:
            return z_nmc.new_zeros(()), torch.zeros_like(logits_mnc)
        with torch.autocast(logits_mnc.device.type, enabled=False):
            q_njy = self._target(ready, z_nmc)
            if is_cross_entropy_of_averages(self.scheme):
                loss = self._of_averages(ready, z_nmc.log_softmax(-1))
            else:
                loss = cross_entropy(q_njy, z_nmc)
            q_jny, z_mnc = q_njy.transpose(0, 1), z_nmc.transpose(0, 1)
            return loss, q_jny.sum(-1, keepdim=True) * z_mnc.softmax(-1) - q_jny

    def taught(self, v: int, logits_mnc: Tensor) -> Tensor:
        """``(m,)``: the sum over pictures, codes and teacher views of student view v's targets."""
        ready, z_nmc = self._view(v, logits_mnc)
        if not ready:
            return z_nmc.new_zeros(z_nmc.shape[1])
        with torch.autocast(logits_mnc.device.type, enabled=False):
            return self._target(ready, z_nmc).sum((0, 2)).expand(z_nmc.shape[1])

    def _target(self, ready: list[Tensor], z_nmc: Tensor) -> Tensor:
        """What a student view is to say, all its teachers together."""
        if is_cross_entropy_of_averages(self.scheme):
            return (z_nmc.log_softmax(-1) / self.gamma).softmax(1) * sum_of(ready)
        return fold_with_student(self.scheme, self.gamma, z_nmc, ready)

    def _of_averages(self, ready: list[Tensor], log_ps: Tensor) -> Tensor:
        return -(sum_of(ready) * average_student(log_ps, self.gamma)).sum()

    def _view(self, v: int, logits_mnc: Tensor) -> tuple[list[Tensor], Tensor]:
        """The teachers of student view ``v``, and its logits beside them."""
        ready = [self.ready_nmc[u] for u in self.teachers_of[v]]
        return ready, logits_mnc.to(self.ready_nmc[0].dtype).transpose(0, 1)

    def mean(self, of_views: list[Tensor]) -> Tensor:
        return sum_of(of_views) / self.terms


def fold_before_student(scheme: Scheme, gamma: float | Tensor, pt_nmc: Tensor) -> Tensor:
    """A teacher view as far as it can be folded before any student is known."""
    if is_cross_entropy_of_averages(scheme):
        return pt_nmc.mean(1, keepdim=True)
    if scheme.reads in ("student", "both"):
        return pt_nmc
    log_pt = pt_nmc if scheme.reads == "nothing" else pt_nmc.log()
    weights = compact_weights(scheme, gamma, log_pt, log_pt)
    return fold_teachers(weights, pt_nmc, scheme.aligned)


def fold_with_student(
    scheme: Scheme, gamma: float | Tensor, z_nmc: Tensor, ready_nmc: list[Tensor]
) -> Tensor:
    """The one target ``q[n, j, y]`` of a student view: the sum over its weighted teacher views."""
    if scheme.reads in ("nothing", "teacher"):
        return sum_of(ready_nmc)
    log_ps = z_nmc.detach().log_softmax(-1)
    if scheme.reads == "student":
        weights = compact_weights(scheme, gamma, log_ps, log_ps)
        return fold_teachers(weights, sum_of(ready_nmc), scheme.aligned)
    return sum_of(
        [
            fold_teachers(compact_weights(scheme, gamma, log_ps, pt.log()), pt, scheme.aligned)
            for pt in ready_nmc
        ]
    )


def cross_entropy(q_njy: Tensor, z_nmc: Tensor) -> Tensor:
    """``-sum q log softmax(z)``, as ``(sum_y q) logsumexp(z) - <q, z>``: no log-probabilities."""
    return (q_njy.sum(-1) * z_nmc.logsumexp(-1)).sum() - (q_njy * z_nmc).sum()


def is_cross_entropy_of_averages(scheme: Scheme) -> bool:
    """Soft, unaligned ``prob``: the one scheme whose value is not the general form's."""
    return scheme.score is student_probability and not scheme.aligned and not scheme.hard


def average_student(log_ps_bmc: Tensor, gamma: float | Tensor) -> Tensor:
    """``gamma log(mean_j s_j^(1/gamma))``, ``(b, 1, c)``: the log of the mean student at gamma 1.

    Its gradient is ``sum_j w_j grad log s_j`` with ``w = softmax_j(log s_j / gamma)``: the general
    form's, for any gamma.
    """
    log_ps_bmc = finite(log_ps_bmc)
    top = log_ps_bmc.detach().amax(1, keepdim=True)
    # 1 + mean(expm1) lies in [1/m, 1]: exact for a small gamma and for a very large one.
    return top + gamma * ((log_ps_bmc - top) / gamma).expm1().mean(1, keepdim=True).log1p()


def sum_of(tensors: Sequence[Tensor]) -> Tensor:
    return reduce(torch.add, tensors)


def check_views(student: tuple[int, ...], teacher_probs_umnc: Tensor, same_views: bool) -> None:
    """Of the student only the shape of its logits is looked at."""
    given = f"got {student} and {tuple(teacher_probs_umnc.shape)}"
    if len(student) != 4 or teacher_probs_umnc.dim() != 4:
        raise ValueError(
            f"student logits (V, M, N, C) and teacher probabilities (U, M, N, C), {given}"
        )
    if student[1:] != tuple(teacher_probs_umnc.shape[1:]):
        raise ValueError(f"student and teacher must agree in heads, images and codes, {given}")
    if 0 in student or 0 in teacher_probs_umnc.shape:
        raise ValueError(f"student and teacher must not be empty, {given}")
    refuse_other_than_probabilities(
        teacher_probs_umnc[:, :, 0].detach(), "the teacher's must be probabilities (not logarithms)"
    )
    if same_views and len(teacher_probs_umnc) > student[0]:
        raise ValueError(f"the teacher has more views than the student, {given}")
