"""Where a classifier errs: accuracy of each class, and which classes it takes for which."""

from typing import Any

import torch
from torch import Tensor

from wessl.evaluate.statistics.bootstrap import accuracy_interval

LARGEST = 100
"""Up to so many classes the whole confusion matrix is written down."""
PAIRS = 10
"""So many of the most confused pairs are named."""


def confusion(predicted_gn: Tensor, test_labels: Tensor, classes: int) -> Tensor:
    """Shares `(c, c)` of each true class (rows) that got each label, averaged over draws.

    Labels are numbers below `classes`. One without a test picture has a row of zeros.

    >>> confusion(torch.tensor([[0, 1, 1], [0, 0, 1]]), torch.tensor([0, 0, 1]), 3)
    tensor([[0.7500, 0.2500, 0.0000],
            [0.0000, 1.0000, 0.0000],
            [0.0000, 0.0000, 0.0000]], dtype=torch.float64)
    """
    cells = test_labels.expand_as(predicted_gn) * classes + predicted_gn
    counts = cells.flatten().bincount(minlength=classes**2).unflatten(0, (classes, classes))
    return counts.double() / counts.sum(1, keepdim=True).clamp_min(1)


def per_class(
    predicted_gn: Tensor,
    test_labels: Tensor,
    names: list[str] | None,
    seed: int = 0,
    taken: float = 0.0,
) -> dict[str, Any]:
    """Accuracy of each class, the confusion matrix, and the most confused pairs, for a report.

    Labels are any numbers; `names` are those of 0, 1, 2, ... A class without a test picture has no
    accuracy. `seed` and `taken` are those of the intervals: see `accuracy_interval`.
    """
    known = test_labels.new_tensor(range(len(names or ())))
    values, both = torch.cat([known, test_labels, predicted_gn.flatten()]).unique(
        return_inverse=True
    )
    truth, guesses = both[len(known) :].split([len(test_labels), predicted_gn.numel()])
    shares = confusion(guesses.view_as(predicted_gn), truth, len(values))
    called = [
        names[value] if names and value < len(names) else str(value) for value in values.tolist()
    ]
    tested = truth.bincount(minlength=len(values)).tolist()
    correct_gn = predicted_gn == test_labels
    result: dict[str, Any] = dict(
        classes=[
            dict(
                name=name,
                accuracy=float(shares[i, i]) if tested[i] else None,
                interval=list(accuracy_interval(correct_gn[:, truth == i], seed, taken))
                if tested[i]
                else None,
                pictures=tested[i],
            )
            for i, name in enumerate(called)
        ],
        confused=_most_confused(shares, tested, called),
    )
    if len(values) <= LARGEST:
        result["confusion"] = [[round(value, 4) for value in row] for row in shares.tolist()]
    return result


def _most_confused(shares: Tensor, tested: list[int], names: list[str]) -> list[dict[str, Any]]:
    """Pairs with the share of the true class's pictures, and their number in a mean draw."""
    wrong = shares - shares.diag().diag()
    worst = wrong.flatten().argsort(descending=True, stable=True)[:PAIRS].tolist()
    cells = [(divmod(cell, len(shares)), float(wrong.flatten()[cell])) for cell in worst]
    return [
        dict(true=names[i], predicted=names[j], share=share, count=round(share * tested[i], 1))
        for (i, j), share in cells
        if share > 0
    ]
