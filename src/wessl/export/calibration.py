"""How sure a classifier should be: a temperature from held-out labels, and what it is worth."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SPREAD = 0.5
"""How far, in natural logarithms, a temperature is expected to lie from 1 before any evidence."""


@dataclass(frozen=True)
class Half:
    """Some held-out labels: the share expected to be named rightly, and the share that was."""

    expected: float
    right: float
    of: int
    chance: float
    """How far apart the two may lie by chance, 19 times of 20, where confidences are right."""

    @property
    def too_sure(self) -> float:
        """By what share confidences are too high, below 0 too low; 0 where chance may have it."""
        gap = self.expected - self.right
        return gap if abs(gap) > self.chance else 0.0


@dataclass(frozen=True)
class Calibration:
    """Confidences against held-out labels: the surer half of them, and the rest.

    Each label is seen at a temperature learnt from the others, as the one in use has seen them all.
    """

    surer: Half
    rest: Half

    @property
    def tells(self) -> bool:
        """Whether the surer half was right more often: only then is the order worth anything."""
        return self.surer.right > self.rest.right or self.surer.right == 1.0

    def in_words(self) -> str:
        """
        >>> Calibration(Half(0.97, 0.96, 25, 0.07), Half(0.86, 0.88, 25, 0.14)).in_words()
        'of the surer half 97 of 100 expected right and 96 were, of the rest 86 and 88'
        """
        a, b, c, d = (
            round(100 * share)
            for half in (self.surer, self.rest)
            for share in (half.expected, half.right)
        )
        return f"of the surer half {a} of 100 expected right and {b} were, of the rest {c} and {d}"


def measure(logits_nc: Tensor, truth_n: Tensor, fold_n: Tensor) -> Calibration:
    """From logits by models that did not see the pictures; each fold at the others' temperature."""
    sure, right = (torch.empty(len(truth_n), dtype=torch.float64) for _ in range(2))
    for fold in fold_n.unique().tolist():
        own = fold_n == fold
        divisor = temperature(logits_nc[~own], truth_n[~own])
        best = (logits_nc[own] / divisor).softmax(1).max(1)
        sure[own] = best.values.double()
        right[own] = (best.indices == truth_n[own]).double()
    order = sure.argsort(descending=True, stable=True)
    surer, rest = order.tensor_split(2)
    return Calibration(_half(sure[surer], right[surer]), _half(sure[rest], right[rest]))


def _half(sure_n: Tensor, right_n: Tensor) -> Half:
    n = len(sure_n)
    # So far labels scatter that are right as often as their confidences say, and half a label more,
    # as they come one by one.
    scatter = 1.96 * math.sqrt(float((sure_n * (1 - sure_n)).sum())) / n + 0.5 / n
    return Half(float(sure_n.mean()), float(right_n.mean()), n, scatter)


def likelihood(logits_snc: Tensor, truth_n: Tensor) -> Tensor:
    """Of the truth, its logarithm summed over the pictures, `(s,)`."""
    rows = torch.arange(len(truth_n))
    return logits_snc.log_softmax(2)[:, rows, truth_n].sum(1)


def temperature(logits_nc: Tensor, truth_n: Tensor) -> float:
    """The likeliest divisor of the logits, weighed against `SPREAD`.

    Without that weight, labels that are all named rightly would make every confidence 1.
    """
    from scipy.optimize import minimize_scalar

    def cost(log_t: float) -> float:
        likely = likelihood(logits_nc[None] / math.exp(log_t), truth_n)
        return float(-likely) + log_t**2 / (2 * SPREAD**2)

    found = minimize_scalar(cost, bounds=(-3.0, 3.0), method="bounded")
    return math.exp(float(found.x))
