"""Who teaches whom, and how much: the weights ``w_ijy`` of the paper's loss family.

A score ``f[b, i, j, y]`` says how much image ``b`` wants teacher head ``i`` to teach student head
``j`` about code ``y``. A softmax of ``f / gamma`` over all pairs ``(i, j)`` makes it a weight. A
score that does not depend on an axis keeps it at size 1, and that is what makes the losses cheap:
``unif`` is one number, ``ent`` is ``(b, m, 1, 1)``; nothing here is ``m x m x c`` unless a user's
own score is.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from wessl.ensemble.checks import common_dtype, positive, refuse_other_than_probabilities

Score = Callable[[Tensor, Tensor], Tensor]
Reads = Literal["nothing", "teacher", "student", "both"]


def entropy(log_p: Tensor) -> Tensor:
    """``H[p]`` in nats over the last axis, with ``0 log 0 = 0``."""
    return -(log_p.exp() * finite(log_p)).sum(-1)


def finite(log_p: Tensor) -> Tensor:
    """``log_p`` with the lowest number for ``-inf``, so that ``0 * log 0`` is 0, not NaN."""
    return log_p.clamp_min(torch.finfo(log_p.dtype).min)


# The scores of the paper's section 3.3. Each maps (b, m, c) log-probabilities of student and
# teacher to something that broadcasts to (b, teacher i, student j, code y).


def equal(log_ps: Tensor, log_pt: Tensor) -> Tensor:
    return log_pt.new_zeros(1, 1, 1, 1)


def student_probability(log_ps: Tensor, log_pt: Tensor) -> Tensor:
    return log_ps[:, None, :, :]


def teacher_probability(log_ps: Tensor, log_pt: Tensor) -> Tensor:
    return log_pt[:, :, None, :]


def teacher_certainty(log_ps: Tensor, log_pt: Tensor) -> Tensor:
    return -entropy(log_pt)[:, :, None, None]


def student_certainty(log_ps: Tensor, log_pt: Tensor) -> Tensor:
    return -entropy(log_ps)[:, None, :, None]


def disagreement(log_ps: Tensor, log_pt: Tensor) -> Tensor:
    cross_entropy_bij = -(log_pt.exp() @ finite(log_ps).transpose(1, 2))
    return (cross_entropy_bij - entropy(log_pt)[:, :, None])[..., None]


def teacher_precision(log_ps: Tensor, log_pt: Tensor) -> Tensor:
    codes = torch.arange(log_pt.shape[-1], dtype=log_pt.dtype, device=log_pt.device)
    p = log_pt.exp()
    mean = (p * codes).sum(-1, keepdim=True)
    variance = (p * (codes - mean).square()).sum(-1)
    return -0.5 * (variance + 1 / 12).log()[:, :, None, None]


class Scheme(NamedTuple):
    """A row of the paper's family: its score, its flags, and whose predictions the score reads."""

    score: Score
    aligned: bool
    hard: bool
    reads: Reads


SCHEMES: dict[str, Scheme] = {
    "unif": Scheme(equal, aligned=True, hard=False, reads="nothing"),
    "unif-all": Scheme(equal, aligned=False, hard=False, reads="nothing"),
    "prob": Scheme(student_probability, aligned=False, hard=False, reads="student"),
    "prob-te": Scheme(teacher_probability, aligned=False, hard=False, reads="teacher"),
    "prob-max": Scheme(student_probability, aligned=False, hard=True, reads="student"),
    "prob-max-te": Scheme(teacher_probability, aligned=False, hard=True, reads="teacher"),
    "ent": Scheme(teacher_certainty, aligned=True, hard=False, reads="teacher"),
    "ent-st": Scheme(student_certainty, aligned=True, hard=False, reads="student"),
    "kl": Scheme(disagreement, aligned=False, hard=False, reads="both"),
    "var": Scheme(teacher_precision, aligned=False, hard=False, reads="teacher"),
}


@dataclass(frozen=True)
class Weighting:
    """A member of the family: a score, aligned (pairs ``i == j`` only) or not, soft or hard.

    ``score`` is your own function of the detached ``(log_ps, log_pt)``, both ``(b, m, c)``, that
    broadcasts to ``(b, m, m, c)`` as ``[image, teacher, student, code]``, or a scheme's name. A
    named scheme keeps the flags it has in the paper; the two here only add to them.

    >>> each_head_with_its_own_teacher = Weighting("kl", aligned=True)
    >>> the_surest_teacher_alone = Weighting("ent", hard=True)
    >>> yours = Weighting(lambda log_ps, log_pt: log_pt.amax(-1)[:, :, None, None])
    """

    score: Score | str
    aligned: bool = False
    hard: bool = False


def as_scheme(weighting: str | Weighting) -> Scheme:
    """Looks up a name, or completes a ``Weighting`` to a scheme."""
    if isinstance(weighting, str):
        if weighting not in SCHEMES:
            raise ValueError(f"unknown weighting {weighting!r}; choose one of {', '.join(SCHEMES)}")
        return SCHEMES[weighting]
    if not isinstance(weighting, Weighting):
        raise ValueError(
            f"weighting must be a name or a Weighting(your_score, ...), not {weighting!r}"
        )
    if isinstance(weighting.score, str):
        named = as_scheme(weighting.score)
        return named._replace(
            aligned=named.aligned or weighting.aligned, hard=named.hard or weighting.hard
        )
    if not callable(weighting.score):
        raise ValueError(f"Weighting.score must be a name or callable, not {weighting.score!r}")
    return Scheme(weighting.score, weighting.aligned, weighting.hard, reads="both")


def as_temperature(scheme: Scheme, temperature: float | Tensor | None, c: int) -> float | Tensor:
    """Gamma in nats: the given one, checked, or the paper's default for this scheme."""
    if scheme.hard or scheme.score is equal:
        return 1.0  # unused: the limit gamma -> 0, or a score without differences
    if temperature is None:
        named_prob = scheme.score in (student_probability, teacher_probability)
        return 1.0 if named_prob else 0.05 * math.log(max(c, 2))
    return positive(temperature)


def ensemble_weights(
    log_ps: Tensor,
    log_pt: Tensor,
    weighting: str | Weighting = "ent",
    temperature: float | Tensor | None = None,
) -> Tensor:
    """The weights ``w[b, i, j, y]`` of teacher head ``i`` for student head ``j`` at code ``y``.

    Takes ``(b, m, c)`` log-probabilities and returns a tensor that broadcasts to ``(b, m, m, c)``.
    Broadcast, it sums to 1 over all pairs ``(i, j)`` for every image and code. No gradient flows.

    >>> log_ps, log_pt = torch.randn(2, 8, 16, 128).log_softmax(-1)  # 8 images, 16 heads, 128 codes
    >>> w = ensemble_weights(log_ps, log_pt, "ent")
    >>> w.shape                                                      # one weight for all codes
    torch.Size([8, 16, 16, 1])
    """
    log_ps, log_pt = check_pair(log_ps, log_pt)
    scheme = as_scheme(weighting)
    gamma = as_temperature(scheme, temperature, log_pt.shape[-1])
    weights = compact_weights(scheme, gamma, log_ps, log_pt)
    if not scheme.aligned:
        return weights
    return torch.diag_embed(weights.squeeze(2).transpose(1, 2), dim1=1, dim2=2)


@torch.no_grad()
def compact_weights(
    scheme: Scheme, gamma: float | Tensor, log_ps_bmc: Tensor, log_pt_bmc: Tensor
) -> Tensor:
    """Weights ``(b|1, m|1, m|1, c|1)``; for an aligned scheme the diagonal alone, ``(., m, 1, .)``.

    Axes the score does not read stay at size 1, and the weight is shared over them.
    """
    b, m, c = log_pt_bmc.shape
    with torch.autocast(log_pt_bmc.device.type, enabled=False):
        score = scheme.score(log_ps_bmc.detach(), log_pt_bmc.detach())
    score = _as_bijy(score, (b, m, m, c)).to(log_pt_bmc.dtype)
    if scheme.aligned:
        score = score.expand(-1, m, m, -1).diagonal(dim1=1, dim2=2).transpose(1, 2)[:, :, None]
        return _softmax_over_pairs(score, gamma, scheme.hard)
    shared = (m // score.shape[1]) * (m // score.shape[2])
    return _softmax_over_pairs(score, gamma, scheme.hard) / shared


def _softmax_over_pairs(score_bijy: Tensor, gamma: float | Tensor, hard: bool) -> Tensor:
    """Softmax of ``score / gamma`` over axes 1 and 2; hard is its limit, ties sharing equally.

    Pairs at the top get exactly 1 before the division, also where the top is infinite: a code no
    teacher believes in (all scores ``-inf``) is shared by all instead of becoming NaN.
    """
    top = score_bijy.amax((1, 2), keepdim=True)
    at_top = score_bijy == top
    if hard:
        unnormalised = at_top.to(score_bijy.dtype)
    else:
        gap = torch.where(at_top, 0.0, score_bijy - top)
        unnormalised = (gap / gamma).exp()
    return unnormalised / unnormalised.sum((1, 2), keepdim=True)


def fold_teachers(weights: Tensor, pt_bmc: Tensor, aligned: bool) -> Tensor:
    """The one target of each student head: ``q[b, j, y] = sum_i w[b, i, j, y] t[b, i, y]``.

    ``(b, m, c)``, or ``(b, 1, c)`` where all students share it. Each branch contracts the teacher
    axis without ever holding ``m x m x c`` (except for weights that are themselves that large).
    """
    if aligned:
        return weights.squeeze(2) * pt_bmc
    of_teacher, of_student, of_code = (size > 1 for size in weights.shape[1:])
    if not of_teacher:
        return weights.squeeze(1) * pt_bmc.sum(1, keepdim=True)
    if not of_student:
        return (weights.squeeze(2) * pt_bmc).sum(1, keepdim=True)
    if not of_code:
        return weights.squeeze(3).transpose(1, 2) @ pt_bmc
    return (weights * pt_bmc[:, :, None]).sum(1)


def _as_bijy(score: Tensor, full: tuple[int, int, int, int]) -> Tensor:
    """All four axes, or with as many heads as pictures one could be taken for another."""
    shape = tuple(score.shape) if isinstance(score, Tensor) else ()
    if len(shape) != 4 or any(n not in (1, size) for n, size in zip(shape, full, strict=True)):
        raise ValueError(
            "a score must return a tensor of four axes, each 1 or as in (b, m, m, c) = "
            f"{full}, got {shape or type(score).__name__}"
        )
    return score


def check_pair(log_ps: Tensor, log_pt: Tensor) -> tuple[Tensor, Tensor]:
    """Both in one dtype of at least fp32, checked to be ``(b, m, c)`` of one shape."""
    if log_ps.dim() != 3 or log_ps.shape != log_pt.shape or 0 in log_ps.shape:
        raise ValueError(
            "log_ps and log_pt must both be (b, m, c) and not empty, "
            f"got {tuple(log_ps.shape)} and {tuple(log_pt.shape)}"
        )
    dtype = common_dtype(log_ps, log_pt)
    log_ps, log_pt = log_ps.to(dtype), log_pt.detach().to(dtype)
    refuse_other_than_probabilities(log_ps[0].detach().exp(), "log_ps must be log-probabilities")
    refuse_other_than_probabilities(log_pt[0].exp(), "log_pt must be log-probabilities")
    return log_ps, log_pt
