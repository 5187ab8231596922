"""Which pictures are most worth a label next, all of them different from each other.

Where labels could be held out, those the classifier cannot decide: of the pictures with the
smallest margin between the two likeliest classes, `POOL` for each one asked for, k-means makes as
many groups as are asked for, and every group sends its smallest margin. Without the groups the list
would be one hard picture and its copies.

With one label a class margins tell little, and those that stand for many others are worth more:
k-means makes a group for each label and each picture asked for, and the largest groups without a
label send the picture in their middle.
"""

import warnings
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

POOL = 10
LOOKED_AT = 20_000
"""At most so many pictures, evenly spaced, are grouped."""

Rows = NDArray[np.int64]
UnitOf = Callable[[Rows], Tensor]
"""From row numbers to features of length 1, only of those looked at."""


def undecided(unit_of: UnitOf, margin_n: Tensor, count: int) -> Rows:
    """Rows of `count` pictures at most, the smallest margin first."""
    rows = margin_n.argsort(stable=True)[: POOL * count].numpy()
    if not len(rows):
        return rows
    group, _ = _groups(unit_of(rows), min(count, len(rows)))
    # Rows are in the order of their margins, so a group's first is its smallest.
    first = np.unique(group, return_index=True)[1]
    return rows[np.sort(first)]


def typical(unit_of: UnitOf, n: int, labelled_ld: Tensor, count: int) -> Rows:
    """Rows, of `n`, of `count` pictures at most, that of the largest group first."""
    rows = np.unique(np.linspace(0, n - 1, min(n, LOOKED_AT)).astype(np.int64))
    if not count:
        return rows[:0]
    features = np.concatenate([labelled_ld.double().numpy(), unit_of(rows).double().numpy()])
    group, centre = _groups(features, min(len(features), len(labelled_ld) + count))
    taken, own = np.split(group, [len(labelled_ld)])
    sizes = np.bincount(own, minlength=len(centre))
    sizes[taken] = 0
    largest = [i for i in np.argsort(-sizes, kind="stable")[:count] if sizes[i]]
    away = np.linalg.norm(features[len(labelled_ld) :] - centre[own], axis=1)
    return np.array([rows[np.where(own == i, away, np.inf).argmin()] for i in largest], np.int64)


def _groups(features: Tensor | NDArray[np.float64], count: int) -> tuple[Rows, NDArray[np.float64]]:
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different pictures than groups
        found = KMeans(count, n_init=4, random_state=0).fit(np.asarray(features, np.float64))
    return found.labels_, found.cluster_centers_


def margins(probabilities_nc: Tensor) -> Tensor:
    """How far the likeliest class is ahead of the second, `(n,)`."""
    best = probabilities_nc.topk(2, dim=1).values
    return best[:, 0] - best[:, 1]
