"""Which code of one head means what a code of another does, and how alike the two are.

Heads number their codes as they please. The Hungarian algorithm finds the numbering that makes
the sum of similarities largest; the similarities of the matched codes, from the most to the least
alike, are the decay curve, and one minus the area under it is the diversity of the two heads.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from wessl.analyse.assignments import Assignments
from wessl.data.pictures import spaced

SIDE = 64
"""Codes a head in a picture of a similarity matrix."""


@dataclass(frozen=True)
class Alignment:
    """Two heads with their codes matched; on the CPU.

    ``rows_c`` and ``columns_c`` are the codes of the first and the second head in the order of
    ``after_c``: row ``rows_c[k]`` is matched with column ``columns_c[k]``.
    """

    heads: tuple[int, int]
    before_c: Tensor
    """Similarity of codes of the same number, falling."""
    after_c: Tensor
    """Similarity of matched codes, falling: the decay curve."""
    rows_c: Tensor
    columns_c: Tensor

    @property
    def score(self) -> float:
        """One minus the area under the decay curve: 0 for copies, 1 for nothing in common."""
        return 1 - float(self.after_c.mean(dtype=torch.float64))

    @property
    def score_before(self) -> float:
        return 1 - float(self.before_c.mean(dtype=torch.float64))


def align(similarity_cc: Tensor, heads: tuple[int, int] = (0, 1)) -> Alignment:
    """Matches the codes of two heads so that the sum of their similarities is largest.

    >>> similarity = torch.tensor([[0.1, 0.9], [0.8, 0.2]])
    >>> matched = align(similarity)
    >>> matched.columns_c.tolist(), round(matched.score, 3), round(matched.score_before, 3)
    ([1, 0], 0.15, 0.85)
    """
    similarity_cc = similarity_cc.cpu()
    columns_c = torch.from_numpy(linear_sum_assignment(similarity_cc.numpy(), maximize=True)[1])
    matched_c = similarity_cc.gather(1, columns_c[:, None])[:, 0]
    after_c, rows_c = matched_c.sort(descending=True, stable=True)
    before_c = similarity_cc.diagonal().sort(descending=True).values
    return Alignment(heads, before_c, after_c, rows_c, columns_c[rows_c])


def align_all(assignments: Assignments) -> Iterator[tuple[Alignment, Tensor]]:
    """Every pair of heads, and for each picture the similarity of the two codes it is given."""
    code_mn = assignments.code_mn.long()

    def one(pair: int) -> tuple[Alignment, Tensor]:
        i, j = assignments.pairs[pair]
        similarity_cc = assignments.cosines(pair)
        return align(similarity_cc, (i, j)), similarity_cc[code_mn[i], code_mn[j]]

    # The solver lets go of Python's lock, so threads are enough.
    with ThreadPoolExecutor(torch.get_num_threads()) as threads:
        yield from threads.map(one, range(len(assignments.pairs)))


def pictures(similarity_cc: Tensor, alignment: Alignment) -> tuple[Tensor, Tensor]:
    """The similarity matrix before and after alignment, of 64 evenly spaced codes a side.

    Codes are left out rather than averaged: a mean over blocks would wash out the diagonal.
    """
    similarity_cc = similarity_cc.cpu()
    shown = spaced(len(similarity_cc), SIDE)
    rows, columns = alignment.rows_c[shown], alignment.columns_c[shown]
    return similarity_cc[shown][:, shown], similarity_cc[rows][:, columns]
