"""Protocols on features: each returns its numbers with the protocol written beside them."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor

from wessl.data.splits import few_shot_draws
from wessl.evaluate.knn import knn_accuracy
from wessl.evaluate.logistic import FEW_SHOT_STRENGTHS, logistic


@dataclass(frozen=True)
class Labelled:
    """Features of a labelled set, ``(n, dim)`` and ``(n,)``."""

    features: Tensor
    labels: Tensor


def few_shot(
    train: Labelled,
    test: Labelled,
    shots: int,
    draws: int = 30,
    seed: int = 0,
    strength: float = FEW_SHOT_STRENGTHS[len(FEW_SHOT_STRENGTHS) // 2],
    features: Literal["raw", "unit"] = "unit",
) -> dict[str, Any]:
    """Accuracy of logistic regression on ``shots`` pictures a class, over many draws of them.

    The strength is fixed beforehand (the middle of the paper's sweep): nothing is chosen on the
    test pictures. Draws are nested: those of 1 shot lie within those of 2 and 5.
    """
    x, z = (_as(features, side.features) for side in (train, test))
    chosen = few_shot_draws(train.labels, shots, draws, seed)
    predicted = logistic(x, train.labels, [strength], draws=chosen).predict(z)[:, 0]
    accuracy = (predicted == test.labels.to(predicted.device)).double().mean(1)
    return dict(
        accuracy=float(accuracy.mean()),
        sd=float(accuracy.std()) if draws > 1 else 0.0,
        standard_error=float(accuracy.std()) / math.sqrt(draws) if draws > 1 else 0.0,
        per_draw=accuracy.tolist(),
        protocol=dict(
            name=f"{shots}-shot",
            classifier="multi-class logistic regression, L2 on the mean loss, free intercept",
            strength=strength,
            strength_chosen="fixed: the middle of the paper's sweep",
            features=features,
            draws=draws,
            seed=seed,
            train_pictures=len(train.labels),
            test_pictures=len(test.labels),
        ),
    )


def nearest_neighbours(train: Labelled, test: Labelled, k: int = 20) -> dict[str, Any]:
    """Accuracy of the paper's weighted k-NN vote over all training labels."""
    accuracy = knn_accuracy(train.features, train.labels, test.features, test.labels, k=(k,))
    return dict(
        accuracy=accuracy[k],
        protocol=dict(
            name="k-NN",
            k=k,
            similarity="cosine",
            votes="exp(similarity / 0.07)",
            train_pictures=len(train.labels),
            test_pictures=len(test.labels),
        ),
    )


def _as(kind: Literal["raw", "unit"], features: Tensor) -> Tensor:
    return F.normalize(features, dim=1) if kind == "unit" else features
