"""Multi-class logistic regression for many strengths and many draws of labels at once.

Each problem minimises `mean_i -log softmax(x_i W + b)[y_i] + strength / 2 ||W||^2`: the penalty is
on the mean loss and spares the intercept. scikit-learn's `C` for it is `1 / (strength * n)`. As
there, two classes have one weight vector, the difference of W's columns, and the penalty is on it.

Shapes: `g` draws, `n` pictures a draw, `d` features, `r` coordinates, `s` strengths, `c` classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from wessl.errors import UserError
from wessl.evaluate.knn import check_finite, check_labelled, full_precision

FEW_SHOT_STRENGTHS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0)
TRANSFER_STRENGTHS = (1e-6, 1e-5, *FEW_SHOT_STRENGTHS, 30.0, 100.0, 1e3, 1e4, 1e5)

# How near the optimum, as a share of the penalty, and as one of the value where rounding ends it.
_TOLERANCE = {torch.float32: (1e-6, 2e-13), torch.float64: (1e-10, 2e-16)}
_BYTES = 2 << 30  # working memory, which bounds how many draws run side by side
_ENOUGH = 0.3  # how far a Newton system is solved and a line searched; 0.1 to 0.6 cost the same
_CG_STEPS, _SEARCH_STEPS = 500, 20
_FLOAT32_STEPS = 40  # what needs more is limited by float32's rounding


@dataclass(frozen=True)
class LogisticFit:
    """One linear classifier for each draw and strength; without draws the first axis is absent."""

    strengths: tuple[float, ...]
    classes: Tensor  # (c,) the labels as given, sorted
    center: Tensor  # (d,) subtracted from features before `weight`
    weight: Tensor  # (g, s, d, c)
    bias: Tensor  # (g, s, c), -inf for a class that the draw does not hold
    objective: Tensor  # (g, s)
    iterations: Tensor  # (g, s) Newton steps
    converged: Tensor  # (g, s)

    @torch.no_grad()
    def predict(self, features: Tensor) -> Tensor:
        """The likeliest label for each row of `features`, as `(g, s, rows)`."""
        check_finite(features, "features")
        if features.shape[1] != len(self.center):
            raise UserError(f"fitted on {len(self.center)} features, asked for {features.shape[1]}")
        models = list(zip(self.weight.flatten(0, -3), self.bias.flatten(0, -2), strict=True))
        parts = []
        with full_precision(self.weight.device):
            for rows in features.split(max(1, (1 << 24) // len(self.classes))):
                x = rows.to(self.center) - self.center
                parts.append(torch.stack([(x @ w + b).argmax(dim=1) for w, b in models]))
        label = self.classes[torch.cat(parts, dim=1)].to(features.device)
        return label.unflatten(0, self.bias.shape[:-1])


@torch.no_grad()
def logistic(
    features: Tensor,
    labels: Tensor,
    strengths: Sequence[float],
    draws: Sequence[Sequence[int] | Tensor] | None = None,
    max_iterations: int = 200,
) -> LogisticFit:
    """Fit every strength on every draw, a list of rows of `features` `(N, d)`.

    Draws may differ in length and in the classes they hold; those of one length are solved
    together. The solver works in float32, and in float64 for float64 features, for strengths below
    1e-4 and for what float32 cannot finish. `fit.converged` says which problems reached the
    optimum: weights within 1e-3 of it, relatively, in float32 and 1e-5 in float64, or closer.

    >>> x = torch.tensor([[0.0, 1.0], [0.2, 0.9], [1.0, 0.1], [0.9, 0.0]])
    >>> fit = logistic(x, torch.tensor([4, 4, 7, 7]), FEW_SHOT_STRENGTHS, draws=[[0, 2], [1, 3]])
    >>> fit.predict(x).shape, fit.predict(x)[0, 0]
    (torch.Size([2, 11, 4]), tensor([4, 4, 7, 7]))
    """
    check_labelled(features, labels, "features")
    if not len(strengths) or not all(0 < strength < torch.inf for strength in strengths):
        raise UserError(f"strengths must be finite numbers above 0, not {list(strengths)}")
    classes, target = labels.to(features.device).unique(return_inverse=True)
    rows = _checked_rows(draws, target, classes)
    fit = _blank(features, classes, tuple(strengths), len(rows))
    with full_precision(features.device):
        for length in sorted({len(draw) for draw in rows}):  # one length needs no padding
            members = torch.tensor([i for i, draw in enumerate(rows) if len(draw) == length])
            # A draw needs about ten tensors as large as its logits or weights, in float64.
            bytes_each = 80 * (length + min(length, features.shape[1])) * len(classes)
            for some in members.split(max(1, _BYTES // bytes_each)):
                chosen = torch.stack([rows[i] for i in some.tolist()])
                _solve(fit, some, features[chosen].double(), target[chosen], max_iterations)
    if draws is not None:
        return fit
    by_draw = (fit.weight, fit.bias, fit.objective, fit.iterations, fit.converged)
    return LogisticFit(fit.strengths, classes, fit.center, *(x[0] for x in by_draw))


def _checked_rows(
    draws: Sequence[Sequence[int] | Tensor] | None, target: Tensor, classes: Tensor
) -> list[Tensor]:
    every = torch.arange(len(target), device=target.device)
    lists = [every] if draws is None else [torch.as_tensor(d, device=every.device) for d in draws]
    if not lists:
        raise UserError("draws is an empty list: give at least one list of rows, or None for all")
    rows = [every[d] if len(d) else every[:0] for d in lists]
    for i, draw in enumerate(rows):
        held = classes[target[draw].unique()].tolist()
        if len(held) < 2:
            which = "labels" if draws is None else f"draw {i}"
            found = f"only one class, {held[0]}" if held else "no picture"
            raise UserError(f"{which}: {found}; a classifier needs two classes or more")
    return rows


def _blank(features: Tensor, classes: Tensor, strengths: tuple[float, ...], g: int) -> LogisticFit:
    kept = features.dtype if features.dtype == torch.float64 else torch.float32
    s, d, c = len(strengths), features.shape[1], len(classes)
    return LogisticFit(
        strengths,
        classes,
        center=features.mean(dim=0, dtype=torch.float64).to(kept),
        weight=features.new_empty(g, s, d, c, dtype=kept),
        bias=features.new_empty(g, s, c, dtype=kept),
        objective=features.new_empty(g, s, dtype=torch.float64),
        iterations=features.new_empty(g, s, dtype=torch.int64),
        converged=features.new_zeros(g, s, dtype=torch.bool),
    )


def _solve(fit: LogisticFit, into: Tensor, x_gnd: Tensor, target_gn: Tensor, limit: int) -> None:
    """Write the solutions for the draws `into`, which have one length, into `fit`.

    From the strongest penalty to the weakest, each starts where the one before ended. Solved side
    by side from W = 0 instead, the strengths took three times as many matrix products.
    """
    z, basis, mean, inverse_variance = _coordinates(x_gnd)
    exact = _Problem.of(z, target_gn, inverse_variance, len(fit.classes))
    quick, into = exact.single(), into.to(z.device)
    w = z.new_zeros(len(z), exact.z.shape[2], len(fit.classes))
    along = torch.zeros_like(w)
    for i in sorted(range(len(fit.strengths)), key=lambda i: -fit.strengths[i]):
        strength, start = fit.strengths[i], w
        # Against the features' variance a penalty can be so strong that the logits it leaves are
        # of the size of float32's rounding, or so weak that float32's gradient hides it.
        rough = strength >= 1e-4 and 1e-9 < strength * inverse_variance.amin().item() < 10
        tries = [quick, exact] if rough and fit.weight.dtype == torch.float32 else [exact]
        for problem in tries:  # what float32 leaves unfinished goes on in float64
            most = limit if problem is exact else min(limit, _FLOAT32_STEPS)
            w, value, steps, solved = _minimise(problem.at(strength), w, along, most)
            if solved.all():
                break
        along = w - start
        weight = torch.einsum("gdr,grc->gdc", basis, w[:, :-1])
        moved = torch.einsum("gdc,gd->gc", weight, fit.center.double() - mean)
        bias = exact.prior[:, 0] + w[:, -1] + moved
        fit.weight[into, i] = weight.to(fit.weight)
        # Only differences count, and under a strong penalty float32 needs them near 0.
        fit.bias[into, i] = (bias - bias.amax(dim=1, keepdim=True)).to(fit.bias)
        fit.objective[into, i] = value
        fit.iterations[into, i], fit.converged[into, i] = steps, solved


def _coordinates(x_gnd: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Coordinates `z` `(g, n, r)` in which the problems are well scaled and small, exactly.

    Three invertible steps, so that the optimum stays as it is. Centring only moves the intercept.
    At the optimum W lies in the span of the training features (its part outside is penalised and
    changes no logit), so with fewer pictures than features r = n coordinates hold it. Along the
    principal axes, each divided by its standard deviation, the curvature of the loss at W = 0 is
    one constant times the identity, however wildly the features are scaled; the penalty of a
    coordinate becomes strength / variance. W = basis @ w, with `basis` `(g, d, r)`; also returned
    are the means `(g, d)` and 1 / variance `(g, r)`.
    """
    mean = x_gnd.mean(dim=1, keepdim=True)
    x = x_gnd - mean
    n, d = x.shape[1:]
    # QR covers the span whatever the rank; an eigenvector of a Gram matrix would square its noise.
    basis = torch.linalg.qr(x.mT).Q if n < d else torch.eye(d, dtype=x.dtype, device=x.device)
    z = x @ basis
    turn = torch.linalg.eigh(z.mT @ z).eigenvectors
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
class _Problem:
    """One strength on `g` draws; the last column of `z` is 1, for the intercept."""

    z: Tensor  # (g, n, r)
    target: Tensor  # (g, n, 1)
    penalty: Tensor  # (g, r, 1), 0 for the intercept
    prior: Tensor  # (g, 1, c) log class frequencies, where the intercept starts

    @staticmethod
    def of(z: Tensor, target_gn: Tensor, penalty_gr: Tensor, classes: int) -> "_Problem":
        """A class absent from a draw starts, and so stays, at probability 0."""
        onehot = torch.nn.functional.one_hot(target_gn, classes).to(z)
        prior = onehot.mean(dim=1, keepdim=True).log()
        # Two columns -u and u differ by 2u, whose square is twice the square of both columns.
        pair = prior.isfinite().sum(dim=2) == 2
        penalty = torch.nn.functional.pad(penalty_gr * (1 + pair), (0, 1))[:, :, None]
        ones = torch.nn.functional.pad(z, (0, 1), value=1.0)
        return _Problem(ones, target_gn[:, :, None], penalty, prior)

    def single(self) -> "_Problem":
        return _Problem(self.z.float(), self.target, self.penalty.float(), self.prior.float())

    def at(self, strength: float) -> "_Problem":
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


def _minimise(
    problem: _Problem, start: Tensor, along: Tensor, limit: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Newton's method; the weights `(g, r, c)` and, as `(g,)`, value, steps, converged.

    A draw has converged when the Newton decrement, an estimate of value - optimum, is within the
    tolerance. The penalty makes the value strongly convex, so with a decrement of a share of the
    penalty the weights were within that share's root of the optimum, relatively; the last step
    takes them closer still.
    """
    w, step = start.to(problem.z), along.to(problem.z)
    logits, change = problem.prior + problem.z @ w, problem.z @ step
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
    return w.double(), value.double(), steps, solved


def _newton_step(problem: _Problem, gradient: Tensor, p: Tensor) -> tuple[Tensor, Tensor]:
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
    problem: _Problem,
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
