"""Newton's method with conjugate gradients, for many logistic regressions side by side.

Shapes as in `logistic`: `g` draws, `n` pictures, `d` features, `r` coordinates, `c` classes.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

# How near the optimum, as a share of the penalty, and as one of the value where rounding ends it.
_TOLERANCE = {torch.float32: (1e-4, 2e-13), torch.float64: (1e-10, 2e-16)}
_ENOUGH = 0.3  # how far a Newton system is solved and a line searched; 0.1 to 0.6 cost the same
_CG_STEPS, _SEARCH_STEPS = 500, 20


def coordinates(x_gnd: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Coordinates `z` `(g, n, r)` in which the problems are well scaled and small, exactly.

    Three invertible steps, so that the optimum stays as it is. Centring only moves the intercept.
    At the optimum W lies in the span of the training features (its part outside is penalised and
    changes no logit), so with fewer pictures than features r = n coordinates hold it. Along the
    principal axes, each divided by its standard deviation, the curvature of the loss at W = 0 is
    one constant times the identity, however wildly the features are scaled; the penalty of a
    coordinate becomes strength / variance. W = basis @ w, with `basis` `(g, d, r)`; also returned
    are the means `(g, d)` and 1 / variance `(g, r)`. Draws of more pictures than features share
    their principal axes, which is nearly as good and decomposes one matrix instead of g.
    """
    mean = x_gnd.mean(dim=1, keepdim=True)
    x = x_gnd - mean
    n, d = x.shape[1:]
    # QR covers the span whatever the rank; an eigenvector of a Gram matrix would square its noise.
    basis = torch.linalg.qr(x.mT).Q if n < d else torch.eye(d, dtype=x.dtype, device=x.device)
    z = x @ basis
    gram = z.mT @ z
    turn = torch.linalg.eigh(gram if n < d else gram.mean(dim=0, keepdim=True)).eigenvectors
    z, basis = z @ turn, basis @ turn
    deviation = z.square().mean(dim=1).sqrt()
    # An axis without variance holds only rounding: it gets weight 0 instead of a division by 0.
    flat = deviation <= 1e-12 * deviation.amax(dim=1, keepdim=True)
    inverse = deviation.reciprocal().masked_fill(flat, 0)
    penalty = inverse.masked_fill(flat, 1).square()
    return z * inverse[:, None], basis * inverse[:, None], mean[:, 0], penalty


class _Loss(NamedTuple):
    value: Tensor  # (g,)
    p: Tensor  # (g, n, c) predicted probabilities
    residual: Tensor  # (g, n, c) p minus the one-hot target


@dataclass(frozen=True)
class Problem:
    """One strength on `g` draws; the last column of `z` is 1, for the intercept."""

    z: Tensor  # (g, n, r)
    target: Tensor  # (g, n, 1)
    penalty: Tensor  # (g, r, 1), 0 for the intercept
    prior: Tensor  # (g, 1, c) log class frequencies, where the intercept starts

    @staticmethod
    def of(z: Tensor, target_gn: Tensor, penalty_gr: Tensor, classes: int) -> "Problem":
        """A class absent from a draw starts, and so stays, at probability 0."""
        onehot = torch.nn.functional.one_hot(target_gn, classes).to(z)
        prior = onehot.mean(dim=1, keepdim=True).log()
        # Two columns -u and u differ by 2u, whose square is twice the square of both columns.
        pair = prior.isfinite().sum(dim=2) == 2
        penalty = torch.nn.functional.pad(penalty_gr * (1 + pair), (0, 1))[:, :, None]
        ones = torch.nn.functional.pad(z, (0, 1), value=1.0)
        return Problem(ones, target_gn[:, :, None], penalty, prior)

    def single(self) -> "Problem":
        return Problem(self.z.float(), self.target, self.penalty.float(), self.prior.float())

    def at(self, strength: float) -> "Problem":
        return replace(self, penalty=self.penalty * strength)

    def pull(self, q_gnc: Tensor) -> Tensor:
        """`z' q / n`, as `(g, r, c)`."""
        return (self.z.mT @ q_gnc).div_(self.z.shape[1])

    def loss(self, logits: Tensor) -> _Loss:
        """Written with the other classes' mass, since 1 - p is lost to rounding when p nears 1."""
        others = logits.scatter(2, self.target, -torch.inf).logsumexp(dim=2, keepdim=True)
        value = torch.nn.functional.softplus(others - logits.gather(2, self.target))
        p = logits.softmax(dim=2)
        residual = p.scatter(2, self.target, 0.0)
        residual.scatter_(2, self.target, -residual.sum(dim=2, keepdim=True))
        return _Loss(value.mean(dim=(1, 2)), p, residual)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return torch.linalg.vecdot(a.flatten(1), b.flatten(1))


class Point(NamedTuple):
    """Weights `(g, r, c)`, and what they make of the pictures, `(g, n, c)`."""

    w: Tensor
    logits: Tensor

    def to(self, problem: Problem) -> "Point":
        """In the problem's precision; logits are computed anew where that changes."""
        if self.w.dtype == problem.z.dtype:
            return self
        return start_at(problem, self.w)


def start_at(problem: Problem, w: Tensor) -> Point:
    w = w.to(problem.z)
    return Point(w, problem.prior + problem.z @ w)


def minimise(
    problem: Problem, before: Point, start: Point, limit: int
) -> tuple[Point, Tensor, Tensor, Tensor]:
    """Newton's method; where it ends and, as `(g,)`, value, steps, converged.

    `start` is where a stronger penalty ended and `before` where one still stronger did.

    A draw has converged when the Newton decrement, an estimate of value - optimum, is within the
    tolerance. The penalty makes the value strongly convex, so with a decrement of a share of the
    penalty the weights were within that share's root of the optimum, relatively; the last step
    takes them closer still.
    """
    (w, logits), (w_before, logits_before) = start.to(problem), before.to(problem)
    # A class that a draw does not hold has logits of -inf, which do not change.
    step, change = w - w_before, (logits - logits_before).nan_to_num_(0.0)
    loss = problem.loss(logits)
    value = loss.value + _dot(problem.penalty * w, w) / 2
    # The first step goes along the path that led here; its slope needs no gradient.
    slope = _dot(loss.residual, change) / change.shape[1] + _dot(problem.penalty * w, step)
    w, value, logits, loss = _search(problem, w, value, logits, step, change, slope)
    steps, solved = torch.zeros_like(value).long(), torch.zeros_like(value).bool()
    share, rounding = _TOLERANCE[w.dtype]
    for _ in range(limit):
        gradient = problem.pull(loss.residual).addcmul_(problem.penalty, w)
        gradient *= ~solved[:, None, None]
        step, change = _newton_step(problem, gradient, loss.p)
        slope = _dot(gradient, step)
        w, value, logits, loss = _search(problem, w, value, logits, step, change, slope)
        steps += ~solved
        solved |= -slope / 2 <= share * _dot(problem.penalty * w, w) / 2 + rounding * value
        if solved.all():
            break
    return Point(w, logits), value.double(), steps, solved


def _newton_step(problem: Problem, gradient: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
    """Solve `H step = -gradient` by conjugate gradients; the step and what it does to the logits.

    H v = z' [p * (q - sum_c p q)] / n + penalty * v, with q = z v. Its diagonal, for z of variance
    1, is about mean_i p (1 - p) + penalty, and preconditions. A draw stops when its residual is
    small and the decrement has stopped growing; either alone can stop too early.
    """
    # The intercept has no penalty, and no curvature either where every p is near 0 or 1.
    floor = problem.penalty[:, :-1].amin(dim=1, keepdim=True).clamp(max=1e-4)
    diagonal = ((p * (1 - p)).mean(dim=1, keepdim=True) + problem.penalty).maximum(floor)
    likeliest = p.argmax(dim=2, keepdim=True)
    step, change, left = torch.zeros_like(gradient), torch.zeros_like(p), -gradient
    ahead = left / diagonal
    size = _dot(left, ahead)
    enough, gain, live = size * _ENOUGH**2, torch.zeros_like(size), size > 0
    for tried in range(1, _CG_STEPS + 1):
        # q matters up to a constant a picture; against its likeliest class nothing cancels.
        q = problem.z @ ahead
        q -= q.gather(2, likeliest)
        q -= torch.linalg.vecdot(p, q)[:, :, None]
        pq = p * q
        pulled = problem.pull(pq).addcmul_(problem.penalty, ahead)
        # A constant added to all intercepts changes nothing, so H may be given any curvature there;
        # without one, rounding would grow along it.
        common = ahead[:, -1].mean(dim=1)
        pulled[:, -1] += common[:, None] / p.shape[2]
        # A sum of squares, so that rounding cannot make it negative.
        bend = _dot(pq, q) / p.shape[1] + _dot(problem.penalty * ahead, ahead) + common**2
        live = live & (bend > 0)
        length = torch.where(live, size / bend, 0)
        gain = gain + length * size
        growing = tried * length * size > 0.5 * gain
        step.addcmul_(length[:, None, None], ahead)
        change.addcmul_(length[:, None, None], q)
        left.addcmul_(length[:, None, None], pulled, value=-1)
        fresh = left / diagonal
        before, size = size, _dot(left, fresh)
        live = live & (size > 0) & (growing | (size > enough))
        if not live.any():
            break
        ahead = fresh.addcmul_(torch.where(live, size / before, 0)[:, None, None], ahead)
    return step, change


def _search(
    problem: Problem,
    w: Tensor,
    value: Tensor,
    logits: Tensor,
    step: Tensor,
    change: Tensor,
    slope: Tensor,
) -> tuple[Tensor, Tensor, Tensor, _Loss]:
    """Go along `step` to where the slope is within `_ENOUGH` of its start, in size.

    Logits are linear in the step, so a trial costs no matrix product. From W = 0 a Newton step with
    a small penalty goes far too far, and later ones not far enough; both cost many Newton steps.
    """
    penalty, linear = _dot(problem.penalty * w, w) / 2, _dot(problem.penalty * w, step)
    square = _dot(problem.penalty * step, step)
    length, low, high = (slope < 0).to(slope), torch.zeros_like(slope), slope.new_tensor(torch.inf)
    low_slope, slack = slope, 4 * torch.finfo(w.dtype).eps * value
    for trial in range(_SEARCH_STEPS + 1):
        moved = torch.addcmul(logits, length[:, None, None], change)
        loss = problem.loss(moved)
        reached = loss.value + penalty + length * linear + length**2 * square / 2
        now = _dot(loss.residual, change) / change.shape[1] + linear + length * square
        fallen = reached <= value + 1e-4 * length * slope + slack
        far = (slope < 0) & ~(fallen & (now <= -_ENOUGH * slope))
        near = (slope < 0) & ~far & (now < _ENOUGH * slope)
        if trial == _SEARCH_STEPS or not (far | near).any():
            break
        high = torch.where(far, length, high)
        low, low_slope = torch.where(near, length, low), torch.where(near, now, low_slope)
        secant = low + (length - low) * (low_slope / (low_slope - now)).clamp(0.1, 0.9)
        beyond = torch.where(high.isinf(), 2 * length, (low + high) / 2)
        length = torch.where(far, secant, torch.where(near, beyond, length))
        if trial == _SEARCH_STEPS - 1:
            length = torch.where(far, low, length)
    return w + length[:, None, None] * step, reached, moved, loss
