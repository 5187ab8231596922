"""What every protocol takes and gives: labelled features in; numbers with their protocol out."""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Result = dict[str, Any]
"""Plain values, ready for JSON, but for ``predicted``, the test pictures' labels as a tensor."""

HELD_OUT = 0.2
"""The share of each class that is held out where a set brings no pictures to choose or test on."""


@dataclass(frozen=True)
class Labelled:
    """Features of a labelled set, ``(n, dim)`` and ``(n,)``; `classes` are the labels' names."""

    features: Tensor
    labels: Tensor
    classes: list[str] | None = None

    def __len__(self) -> int:
        return len(self.labels)


def scored(predicted_gn: Tensor, test_labels: Tensor, protocol: dict[str, Any]) -> Result:
    """Mean accuracy and its spread over the draws of ``predicted``; one row means no draws."""
    correct = predicted_gn.cpu() == test_labels.cpu()
    per_draw = correct.double().mean(1)
    result: Result = dict(accuracy=float(per_draw.mean()), predicted=predicted_gn.cpu())
    if len(per_draw) > 1:
        sd = float(per_draw.std())
        result |= dict(sd=sd, standard_error=sd / math.sqrt(len(per_draw)))
        result |= dict(per_draw=per_draw.tolist())
    tested = dict(test_pictures=len(test_labels), test_classes=len(torch.unique(test_labels)))
    return result | dict(draws=len(per_draw), protocol=protocol | tested)
