"""Logistic regression on a few labelled pictures a class, over many draws of them.

The strength of the penalty is chosen from the paper's sweep. A person with five labels a class has
only those to choose with, so `select="val"` cross-validates inside each draw; one label a class
leaves nothing to hold out and takes the sweep's middle. `select="test"` is the paper's way.

The held-out likelihood decides, not the held-out accuracy: a few pictures make many ties, and on
digits the likelihood's choice gave what the best strength on the test pictures gave, to 0.1 points,
the accuracy's choice 0.6 to 1.4 points less.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from wessl.data.labelled.splits import few_shot_draws, fraction_draws
from wessl.errors import UserError
from wessl.evaluate.classifiers.knn import check_labelled
from wessl.evaluate.classifiers.logistic import FEW_SHOT_STRENGTHS, LogisticFit, logistic
from wessl.evaluate.protocol import Labelled, Result, scored
from wessl.evaluate.settings import check_choices

Select = Literal["val", "test"]
FOLDS = 5
_BYTES = 1 << 30  # of classifiers held at once


def few_shot(
    train: Labelled,
    test: Labelled,
    shots: int | float | Sequence[Tensor],
    draws: int = 30,
    seed: int = 0,
    select: Select = "val",
    fixed: float | None = None,
    strength: Literal["mean", "sum"] = "mean",
    features: Literal["raw", "unit"] = "unit",
    strengths: Sequence[float] = FEW_SHOT_STRENGTHS,
    device: str | torch.device | None = None,
) -> Result:
    """Accuracy with `shots` pictures a class, or a share of every class (0.01), or given draws.

    Draws of one seed are nested: those of 1 shot lie within those of 2 and 5. `fixed` is a strength
    to use instead of a choice. `strength` says what a strength weighs against, the mean or the
    summed loss, and `features` whether rows are scaled to length 1: the paper says neither. A test
    picture of a class that training lacks counts as wrong.

    ::

        result = few_shot(Labelled(x, y), Labelled(x_test, y_test), shots=5)
        result["accuracy"], result["sd"], result["strength"]   # the last one a draw
    """
    check_choices(select=select, strength=strength, features=features)
    check_labelled(train.features, train.labels, "train features")
    check_labelled(test.features, test.labels, "test features")
    place = train.features.device if device is None else torch.device(device)
    x, z = (_as(features, side.features.to(place)) for side in (train, test))
    labels = train.labels.to(place)
    rows = [draw.to(place) for draw in _rows(train, shots, draws, seed)]
    swept = list(strengths) if fixed is None else [fixed]
    folds = min(fold_count(labels[r]) for r in rows)
    guesses = torch.empty(len(rows), len(swept), len(z), dtype=labels.dtype)
    for some, fit in _fits(x, labels, rows, swept, strength):
        guesses[some] = fit.predict(z).cpu()
    sweep = (guesses == test.labels.cpu()).double().mean((0, 2))
    if select == "test":
        chosen = torch.full((len(rows),), int(sweep.argmax()))
    elif len(swept) > 1 and folds > 1:
        chosen = _cross_validated(x, labels, rows, swept, strength, folds)
    else:
        chosen = torch.full((len(rows),), len(swept) // 2)
    protocol = _protocol(rows, labels, swept, strength, features) | dict(
        name=_name(shots, rows, labels),
        strength_chosen=_how(select, fixed, folds),
        drawn="given lists" if isinstance(shots, Sequence) else f"stratified, nested, seed {seed}",
    )
    result = scored(guesses[torch.arange(len(rows)), chosen], test.labels, protocol)
    result["strength"] = [swept[i] for i in chosen.tolist()]
    if select == "test":
        result["sweep"] = dict(zip(map(str, swept), sweep.tolist(), strict=True))
    return result


def _protocol(
    rows: list[Tensor], labels: Tensor, strengths: list[float], strength_on: str, features: str
) -> dict[str, Any]:
    return dict(
        classifier="multi-class logistic regression, L2 penalty, free intercept",
        strengths=strengths,
        strength_on=f"{strength_on} loss",
        features="each scaled to length 1" if features == "unit" else "as they are",
        train_pictures=len(labels),
        labelled_pictures=sorted({len(r) for r in rows}),
        classes=len(labels.unique()),
    )


def _rows(
    train: Labelled, shots: int | float | Sequence[Tensor], draws: int, seed: int
) -> list[Tensor]:
    if isinstance(shots, Sequence):
        if not shots:
            raise UserError("shots is an empty list: give at least one list of rows")
        return list(shots)
    if isinstance(shots, int):
        drawn = few_shot_draws(train.labels, shots, draws, seed, train.classes)
    else:
        drawn = fraction_draws(train.labels, shots, draws, seed)
    # Where all labels are taken all draws are one, and their spread of 0 would say nothing.
    return drawn[:1] if len(drawn[0]) == len(train) else drawn


def _name(shots: int | float | Sequence[Tensor], rows: list[Tensor], labels: Tensor) -> str:
    if isinstance(shots, float):
        return f"{100 * shots:g}%"
    counts = labels[rows[0]].unique(return_counts=True)[1]
    return f"{int(counts[0])}-shot" if bool((counts == counts[0]).all()) else "given labels"


def _how(select: Select, fixed: float | None, folds: int) -> str:
    if fixed is not None:
        return "given beforehand"
    if select == "test":
        return "on the test pictures, the best mean over draws (optimistic)"
    if folds == 1:
        return "as the middle of the sweep: one label a class leaves none to hold out"
    return f"within each draw: the likeliest in {folds}-fold cross-validation"


def _fits(
    x: Tensor, labels: Tensor, rows: list[Tensor], strengths: list[float], on: str
) -> Iterator[tuple[list[int], LogisticFit]]:
    """Classifiers of all draws and whose they are, in parts that fit into memory."""
    most = max(1, _BYTES // (4 * len(strengths) * x.shape[1] * len(labels.unique())))
    # On the summed loss a strength is another one on the mean loss for every size of draw.
    scales = [len(r) if on == "sum" else 1 for r in rows]
    for scale in sorted(set(scales)):
        members = [i for i, own in enumerate(scales) if own == scale]
        for start in range(0, len(members), most):
            some = members[start : start + most]
            on_mean = [s / scale for s in strengths]
            yield some, logistic(x, labels, on_mean, draws=[rows[i] for i in some])


def _cross_validated(
    x: Tensor,
    labels: Tensor,
    rows: list[Tensor],
    strengths: list[float],
    on: str,
    folds: int,
) -> Tensor:
    """The strength likeliest to the held-out part of each draw, its index, `(draws,)`."""
    likelihood = torch.zeros(len(rows), len(strengths), dtype=torch.float64)
    fold_of = [fold_in(labels[r], folds) for r in rows]
    for fold in range(folds):
        kept = [r[f != fold] for r, f in zip(rows, fold_of, strict=True)]
        held = [r[f == fold] for r, f in zip(rows, fold_of, strict=True)]
        for some, models in _fits(x, labels, kept, strengths, on):
            for i, weight, bias in zip(some, models.weight, models.bias, strict=True):
                own = held[i]
                scores = (x[own].to(models.center) - models.center) @ weight + bias[:, None]
                truth = torch.searchsorted(models.classes, labels[own])
                each = scores.log_softmax(2)[:, torch.arange(len(own)), truth]  # (s, held)
                likelihood[i] += each.sum(1, dtype=torch.float64).cpu()
    return likelihood.argmax(1)


def fold_count(labels: Tensor) -> int:
    """As many as most classes have pictures; 1 where most have only one."""
    return min(FOLDS, int(labels.unique(return_counts=True)[1].median()))


def fold_in(labels: Tensor, folds: int) -> Tensor:
    """In which fold each picture is held out: a class's first in 0, its second in 1, and so on.

    -1 for a class's only picture, without which its fold could not know the class.
    """
    by_class = labels.argsort(stable=True)
    counts = labels.unique(return_counts=True)[1]
    first = (counts.cumsum(0) - counts).repeat_interleave(counts)
    place = (torch.arange(len(labels), device=labels.device) - first) % folds
    place[counts.repeat_interleave(counts) == 1] = -1
    return torch.empty_like(by_class).scatter_(0, by_class, place)


def _as(kind: Literal["raw", "unit"], features: Tensor) -> Tensor:
    features = features if features.dtype == torch.float64 else features.float()
    return F.normalize(features, dim=1) if kind == "unit" else features
