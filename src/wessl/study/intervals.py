"""Means over seeds, and differences that are paired by seed: both runs saw the same pictures in the
same order, so what a seed does to both is not held against either."""

import math
import statistics
from collections.abc import Mapping
from typing import Any

from scipy import stats

CONFIDENCE = 0.95
Seeds = Mapping[int, float]


def summary(values: Seeds) -> dict[str, Any]:
    """Mean, standard deviation (None of one seed), number and each seed's value.

    >>> summary({0: 1.0, 1: 3.0})["mean"]
    2.0
    """
    numbers = list(values.values())
    return dict(
        mean=statistics.fmean(numbers),
        sd=statistics.stdev(numbers) if len(numbers) > 1 else None,
        n=len(numbers),
        seeds={str(seed): value for seed, value in sorted(values.items())},
    )


def paired(values: Seeds, base: Seeds, relative: bool = False) -> dict[str, Any] | None:
    """Mean of the differences on common seeds with its t-interval.

    No interval of one seed, nor where seeds agree to the last digit: a few pictures more or less
    are no certainty.

    ``relative``: in per cent of the base.
    """
    common = sorted(values.keys() & base.keys())
    if not common:
        return None
    gains = [values[s] - base[s] for s in common]
    if relative:
        gains = [100 * gain / base[s] for gain, s in zip(gains, common, strict=True)]
    mean, low, high = statistics.fmean(gains), None, None
    if len(gains) > 1 and max(gains) - min(gains) > 1e-9 * max(map(abs, gains)):
        error = statistics.stdev(gains) / math.sqrt(len(gains))
        half = error * float(stats.t.ppf((1 + CONFIDENCE) / 2, len(gains) - 1))
        low, high = mean - half, mean + half
    return dict(mean=mean, low=low, high=high, n=len(gains))
