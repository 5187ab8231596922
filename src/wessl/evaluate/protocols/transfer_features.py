"""The transfer protocol on features: logistic regression on all labels, its strength chosen."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from wessl.data.labelled.splits import held_out
from wessl.data.labelled.transfer_sets import Metric
from wessl.errors import UserError
from wessl.evaluate.classifiers.logistic import TRANSFER_STRENGTHS, LogisticFit, logistic
from wessl.evaluate.protocol import HELD_OUT, Labelled, Result
from wessl.evaluate.settings import check_choices
from wessl.evaluate.statistics.accuracy import score, scores

ON_TEST = "on the test pictures (the paper's way, optimistic)"
ON_VAL = "on the dataset's validation pictures, then trained on those too"
ON_PART = f"on a held-out {HELD_OUT:.0%} of the training pictures, then put back"


def transfer_features(
    train: Labelled,
    val: Labelled | None,
    test: Labelled,
    metric: Metric = "top-1",
    select: Literal["val", "test"] = "val",
    strength: Literal["mean", "sum"] = "mean",
    features: Literal["raw", "unit"] = "unit",
    strengths: Sequence[float] = TRANSFER_STRENGTHS,
    seed: int = 0,
) -> Result:
    """Accuracy of the classifier that train and val together make, on the test features.

    With `select="val"` the strength is the best on `val`, or where there is none on a stratified
    fifth of `train`, drawn by `seed` and put back afterwards; `select="test"` takes the best on
    the test pictures. `strength` and `features` as in `few_shot`.
    """
    check_choices(select=select, strength=strength, features=features)
    train, test = (_as(features, part) for part in (train, test))
    val = None if val is None else _as(features, val)
    everything = train if val is None else _join(train, val)
    sweep = _Sweep(tuple(strengths), strength, metric)
    if select == "test":
        chosen, how = sweep.on_test(everything, test), ON_TEST
    else:
        learn, check = _parts(train, seed) if val is None else (train, val)
        chosen = sweep.off_test(learn, check, everything, test)
        how = ON_PART if val is None else ON_VAL
    result = scores(chosen.predicted, test, metric, seed) | chosen.told(sweep.strengths)
    result["protocol"] = dict(
        name="transfer",
        metric=metric,
        classifier="multi-class logistic regression, L2 penalty, free intercept",
        strengths=list(sweep.strengths),
        strength_on=f"{strength} loss",
        strength_chosen=how,
        features="each scaled to length 1" if features == "unit" else "as they are",
        seed=seed,
        train_pictures=len(everything),
        test_pictures=len(test),
        classes=len(everything.labels.unique()),
    )
    return result


@dataclass(frozen=True)
class _Chosen:
    """Which strength of a sweep, by which accuracies, and what its classifier says."""

    number: int
    accuracies: list[float]
    predicted: Tensor
    converged: bool

    def told(self, strengths: Sequence[float]) -> Result:
        return dict(
            strength=strengths[self.number],
            sweep=dict(zip(map(str, strengths), self.accuracies, strict=True)),
            converged=self.converged,
        )


@dataclass(frozen=True)
class _Sweep:
    """What every fit of one call has in common."""

    strengths: tuple[float, ...]
    on: Literal["mean", "sum"]
    metric: Metric

    def on_test(self, everything: Labelled, test: Labelled) -> _Chosen:
        fit = self._fit(everything)
        guesses = fit.predict(test.features)
        best, accuracies = self._best(guesses, test)
        return _Chosen(best, accuracies, guesses[best], bool(fit.converged[best]))

    def off_test(
        self, learn: Labelled, check: Labelled, everything: Labelled, test: Labelled
    ) -> _Chosen:
        best, accuracies = self._best(self._fit(learn).predict(check.features), check)
        fit = self._fit(everything, only=best)
        predicted = fit.predict(test.features)[0]
        return _Chosen(best, accuracies, predicted, bool(fit.converged[0]))

    def _fit(self, side: Labelled, only: int | None = None) -> LogisticFit:
        wanted = self.strengths if only is None else (self.strengths[only],)
        scale = len(side) if self.on == "sum" else 1
        return logistic(side.features, side.labels, [s / scale for s in wanted])

    def _best(self, guesses: Tensor, side: Labelled) -> tuple[int, list[float]]:
        """Of equally good strengths the strongest, which trusts the training pictures least."""
        accuracies = [score(guess, side.labels, self.metric) for guess in guesses]
        top = [i for i, accuracy in enumerate(accuracies) if accuracy == max(accuracies)]
        return max(top, key=lambda i: self.strengths[i]), accuracies


def _parts(train: Labelled, seed: int) -> tuple[Labelled, Labelled]:
    rows = (part.to(train.labels.device) for part in held_out(train.labels, HELD_OUT, seed))
    kept, held = (Labelled(train.features[r], train.labels[r], train.classes) for r in rows)
    if not len(held):
        raise UserError("every class has one training picture: none to choose on; use select=test")
    return kept, held


def _join(a: Labelled, b: Labelled) -> Labelled:
    both = zip((a.features, a.labels), (b.features, b.labels), strict=True)
    features, labels = (torch.cat(pair) for pair in both)
    return Labelled(features, labels, a.classes)


def _as(kind: Literal["raw", "unit"], side: Labelled) -> Labelled:
    scaled = F.normalize(side.features, dim=1) if kind == "unit" else side.features
    return Labelled(scaled, side.labels, side.classes)
