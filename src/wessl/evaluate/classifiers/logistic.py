"""Multi-class logistic regression for many strengths and many draws of labels at once.

Each problem minimises `mean_i -log softmax(x_i W + b)[y_i] + strength / 2 ||W||^2`: the penalty is
on the mean loss and spares the intercept. scikit-learn's `C` for it is `1 / (strength * n)`. As
there, two classes have one weight vector, the difference of W's columns, and the penalty is on it.

Shapes: `g` draws, `n` pictures a draw, `d` features, `r` coordinates, `s` strengths, `c` classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from wessl.errors import UserError
from wessl.evaluate.classifiers.knn import check_finite, check_labelled, full_precision
from wessl.evaluate.classifiers.newton import Problem, coordinates, minimise, start_at

FEW_SHOT_STRENGTHS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0)
TRANSFER_STRENGTHS = (1e-6, 1e-5, *FEW_SHOT_STRENGTHS, 30.0, 100.0, 1e3, 1e4, 1e5)

_BYTES = 2 << 30  # working memory, which bounds how many draws run side by side
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
    optimum: weights within 1e-2 of it, relatively, in float32 (the objective then is within about
    1e-5) and 1e-5 in float64, or closer. `fit.objective` itself is told to 3e-4 in float32, whose
    logits drift a little from strength to strength.

    >>> x = torch.tensor([[0.0, 1.0], [0.2, 0.9], [1.0, 0.1], [0.9, 0.0]])
    >>> fit = logistic(x, torch.tensor([4, 4, 7, 7]), FEW_SHOT_STRENGTHS, draws=[[0, 2], [1, 3]])
    >>> fit.predict(x).shape, fit.predict(x)[0, 0]
    (torch.Size([2, 11, 4]), tensor([4, 4, 7, 7]))
    """
    check_labelled(features, labels, "features")
    if isinstance(strengths, (int, float)):
        raise UserError(f"strengths must be a list, as [{strengths}]")
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
    for i, wanted in enumerate(lists):
        if len(wanted) and not 0 <= int(wanted.min()) <= int(wanted.max()) < len(every):
            raise UserError(f"draw {i} names a row outside of 0 to {len(every) - 1}")
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
    z, basis, mean, inverse_variance = coordinates(x_gnd)
    exact = Problem.of(z, target_gn, inverse_variance, len(fit.classes))
    quick, into = exact.single(), into.to(z.device)
    point = start_at(quick, z.new_zeros(len(z), exact.z.shape[2], len(fit.classes)))
    before = point
    for i in sorted(range(len(fit.strengths)), key=lambda i: -fit.strengths[i]):
        strength, start = fit.strengths[i], point
        # Against the features' variance a penalty can be so strong that the logits it leaves are
        # of the size of float32's rounding, or so weak that float32's gradient hides it.
        rough = strength >= 1e-4 and 1e-9 < strength * inverse_variance.amin().item() < 10
        tries = [quick, exact] if rough and fit.weight.dtype == torch.float32 else [exact]
        for problem in tries:  # what float32 leaves unfinished goes on in float64
            most = limit if problem is exact else min(limit, _FLOAT32_STEPS)
            point, value, steps, solved = minimise(problem.at(strength), before, point, most)
            if solved.all():
                break
        before, w = start, point.w.double()
        weight = torch.bmm(basis.to(point.w), point.w[:, :-1]).double()
        moved = torch.einsum("gdc,gd->gc", weight, fit.center.double() - mean)
        bias = exact.prior[:, 0] + w[:, -1] + moved
        fit.weight[into, i] = weight.to(fit.weight)
        # Only differences count, and under a strong penalty float32 needs them near 0.
        fit.bias[into, i] = (bias - bias.amax(dim=1, keepdim=True)).to(fit.bias)
        fit.objective[into, i] = value
        fit.iterations[into, i], fit.converged[into, i] = steps, solved
