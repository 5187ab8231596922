"""Two ways to count what is right: over pictures, and over classes."""

from typing import Any

import torch
from torch import Tensor

from wessl.data.labelled.transfer_sets import Metric
from wessl.evaluate.protocol import Labelled
from wessl.evaluate.statistics.bootstrap import accuracy_interval, class_mean_interval


def score(predicted: Tensor, labels: Tensor, metric: Metric) -> float:
    """Share of pictures that are right, or the mean over the classes of `labels` of that share.

    >>> predicted, labels = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 0, 2])
    >>> score(predicted, labels, "top-1"), score(predicted, labels, "mean per class")
    (0.75, 0.5)
    """
    right = (predicted.to(labels.device) == labels).double()
    return float(right.mean() if metric == "top-1" else _by_class(right, labels)[1].mean())


def _by_class(right: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    values, number, counts = labels.unique(return_inverse=True, return_counts=True)
    return values, torch.zeros_like(counts, dtype=right.dtype).index_add_(0, number, right) / counts


def scores(predicted: Tensor, test: Labelled, metric: Metric, seed: int = 0) -> dict[str, Any]:
    """Both, that of every class by its name, and as `accuracy` the one the dataset asks for with
    its 95 % interval over other test pictures, resampled by `seed`."""
    right = (predicted.to(test.labels.device) == test.labels).double()
    values, shares = _by_class(right, test.labels)
    names = [test.classes[i] if test.classes else str(i) for i in values.tolist()]
    if metric == "top-1":
        interval = accuracy_interval(right[None].bool(), seed)
    else:
        interval = class_mean_interval(right.bool(), test.labels, seed)
    return dict(
        accuracy=score(predicted, test.labels, metric),
        interval=list(interval),
        top_1=float(right.mean()),
        mean_per_class=float(shares.mean()),
        per_class=dict(zip(names, shares.tolist(), strict=True)),
        per_class_interval={
            name: list(accuracy_interval(right[None, test.labels == value].bool(), seed))
            for name, value in zip(names, values.tolist(), strict=True)
        },
        predicted=predicted.cpu()[None],
    )
