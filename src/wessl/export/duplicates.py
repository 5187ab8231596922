"""Near-duplicates: pairs of pictures whose features point the same way, and the groups they form.

A group is what is connected by pairs: of three pictures a, b, c with a like b and b like c, all
three are one group though a and c may be no pair.
"""

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from wessl.errors import UserError
from wessl.evaluate.classifiers.knn import full_precision
from wessl.export.choices import THRESHOLD, check_threshold

MOST = 1_000_000
"""More pairs than anybody reads: the threshold is too low."""
_ROWS, _COLUMNS = 2048, 8192
_ROUNDING = 1e-6  # by which the cosine of two equal rows may fall short of 1


class Pairs(NamedTuple):
    """`group[i]`, from 1, of the rows `first[i] < second[i]` and their cosine; sorted by group."""

    group: NDArray[np.int64]
    first: NDArray[np.int64]
    second: NDArray[np.int64]
    similarity: NDArray[np.float64]


@torch.no_grad()
def near_duplicates(features: Tensor, threshold: float = THRESHOLD) -> Pairs:
    """All pairs of rows of `features` `(n, d)` with a cosine of `threshold` or more.

    The largest groups come first, in a group the most similar pairs.

    >>> rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.02, 2.0], [5.0, 0.0]])
    >>> found = near_duplicates(rows)
    >>> list(zip(found.group.tolist(), found.first.tolist(), found.second.tolist()))
    [(1, 0, 3), (2, 1, 2)]
    """
    check_threshold(threshold)
    rows, columns, cosines, count = [], [], [], 0
    with full_precision(features.device):
        for top in range(0, len(features), _ROWS):
            own = _unit(features[top : top + _ROWS])
            for left in range(top, len(features), _COLUMNS):
                cosine = own @ _unit(features[left : left + _COLUMNS]).T
                at, to = (cosine >= threshold - _ROUNDING).nonzero(as_tuple=True)
                above = to + left > at + top  # each pair once, and no row with itself
                at, to = at[above], to[above]
                count += len(at)
                if count > MOST:
                    raise UserError(
                        f"--duplicates {threshold}: more than {MOST:,} pairs are as similar as "
                        "that; give a threshold nearer to 1"
                    )
                rows.append((at + top).cpu())
                columns.append((to + left).cpu())
                cosines.append(cosine[at, to].clamp(max=1).cpu())
    first, second = (torch.cat(some).numpy() for some in (rows, columns))
    return _grouped(first, second, torch.cat(cosines).double().numpy(), len(features))


def _unit(features: Tensor) -> Tensor:
    return F.normalize(features.float(), dim=1)


def _grouped(
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    similarity: NDArray[np.float64],
    count: int,
) -> Pairs:
    graph = coo_array((np.ones(len(first), bool), (first, second)), shape=(count, count))
    part_of = connected_components(graph, directed=False)[1]
    sizes = np.bincount(part_of, minlength=1)
    part = part_of[first]
    order = np.lexsort((second, first, -similarity, part, -sizes[part]))
    part = part[order]
    group = np.cumsum(np.diff(part, prepend=-1) != 0)
    return Pairs(group, first[order], second[order], similarity[order])
