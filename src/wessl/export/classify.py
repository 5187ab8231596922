"""From a few labels to a classifier, how sure it is, and how good it is likely to be.

The classifier is that of the few-shot protocol: logistic regression on features of length 1, its
strength chosen by the held-out likelihood in cross-validation. The held-out pictures also tell how
often it is right, and by how much its confidences must be softened or sharpened.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from wessl.evaluate.classifiers.knn import full_precision
from wessl.evaluate.classifiers.logistic import FEW_SHOT_STRENGTHS, LogisticFit, logistic
from wessl.evaluate.protocols.few_shot import fold_count, fold_in
from wessl.evaluate.statistics.bootstrap import Interval, accuracy_interval
from wessl.export.calibration import Calibration, likelihood, measure, temperature

ENOUGH = 20
"""Held-out pictures from which a temperature is learnt."""
WIDER = 1.5
"""By how much an interval is stretched. Cross-validated answers hang together, and come from less
than all labels: on six sets with 2 to 10 labels a class the plain interval held the truth in 64 to
95 % of 100 draws, the stretched one in 91 to 100 %."""


@dataclass(frozen=True)
class Estimate:
    """How many held-out labelled pictures were named rightly, and the 95 % interval."""

    right: int
    of: int
    interval: Interval
    folds: int

    @property
    def accuracy(self) -> float:
        return self.right / self.of

    def in_words(self) -> str:
        """
        >>> Estimate(21, 25, (0.664, 0.938), 5).in_words()
        'about 84 of 100 right, between 66 and 94'
        """
        low, high = (round(100 * end) for end in self.interval)
        return f"about {round(100 * self.accuracy)} of 100 right, between {low} and {high}"


@dataclass(frozen=True)
class Classifier:
    """A linear classifier on features of length 1; `temperature` divides its logits."""

    center: Tensor  # (d,)
    weight: Tensor  # (d, c)
    bias: Tensor  # (c,)
    strength: float
    temperature: float
    held: int
    """Labels that could be held out: those of classes with two or more."""
    estimate: Estimate | None
    """Of no use where most classes have one label, as it would tell of the others alone."""
    calibration: Calibration | None = None
    """What its confidences are worth, where enough labels could be held out to tell."""

    @property
    def guessing(self) -> bool:
        """Whether its estimate lies within a standard error of what guessing would give."""
        if self.estimate is None:
            return False
        chance, n = 1 / len(self.bias), self.estimate.of
        return self.estimate.accuracy <= chance + math.sqrt(chance * (1 - chance) / n)

    @torch.no_grad()
    def probabilities(self, features: Tensor) -> Tensor:
        """`(n, c)` of features `(n, d)` of any length."""
        with full_precision(self.weight.device):
            logits = (unit(features).to(self.center) - self.center) @ self.weight + self.bias
        return (logits / self.temperature).softmax(1)


def unit(features: Tensor) -> Tensor:
    return F.normalize(features.float(), dim=1)


@torch.no_grad()
def fit(features: Tensor, labels: Tensor, seed: int = 0) -> Classifier:
    """Learn from features `(n, d)` and labels `(n,)`, numbers from 0 to the number of classes - 1.

    >>> x = torch.tensor([[1.0, 0.1], [1.0, 0.0], [0.0, 1.0], [0.2, 1.0]])
    >>> found = fit(x, torch.tensor([0, 0, 1, 1]))
    >>> found.probabilities(x).argmax(1).tolist(), found.estimate.of
    ([0, 0, 1, 1], 4)
    """
    x, every = unit(features), torch.arange(len(labels))
    usual = fold_count(labels)
    # Where most classes have one label, those with two still choose the strength. On digits with
    # ten more labels, unevenly spread, the sweep's middle gave 61 to 84 %, their choice 87 to 89.
    folds = max(2, usual)
    held_in = fold_in(labels, folds)  # -1 for all where every class has one label
    kept = [every[held_in != fold] for fold in range(folds)] if bool((held_in >= 0).any()) else []
    models = logistic(x, labels, FEW_SHOT_STRENGTHS, draws=[*kept, every])
    chosen, divisor = len(FEW_SHOT_STRENGTHS) // 2, 1.0
    estimate: Estimate | None = None
    worth: Calibration | None = None
    held = every[held_in >= 0]
    if len(held):
        logits = _held_out(x[held], held_in[held], models)
        truth = labels[held]
        chosen = int(likelihood(logits, truth).argmax())
        if len(held) >= ENOUGH:
            divisor = temperature(logits[chosen], truth)
            worth = measure(logits[chosen], truth, held_in[held])
        if usual > 1:
            estimate = _estimate(logits[chosen].argmax(1) == truth, folds, seed)
    return Classifier(
        models.center,
        models.weight[-1, chosen],
        models.bias[-1, chosen],
        FEW_SHOT_STRENGTHS[chosen],
        divisor,
        len(held),
        estimate,
        worth,
    )


def _estimate(right: Tensor, folds: int, seed: int) -> Estimate:
    found, (low, high) = float(right.double().mean()), accuracy_interval(right[None], seed)
    ends = found - WIDER * (found - low), found + WIDER * (high - found)
    return Estimate(int(right.sum()), len(right), (max(0.0, ends[0]), min(1.0, ends[1])), folds)


def _held_out(x_nd: Tensor, fold_n: Tensor, models: LogisticFit) -> Tensor:
    """Logits `(s, n, c)` of each picture by the models that did not see it."""
    logits = torch.empty(len(models.strengths), len(x_nd), len(models.classes), dtype=torch.float64)
    centred = x_nd.to(models.center) - models.center
    with full_precision(x_nd.device):
        for fold in fold_n.unique().tolist():
            own = fold_n == fold
            scores = centred[own] @ models.weight[fold] + models.bias[fold][:, None]
            logits[:, own] = scores.double()
    return logits
