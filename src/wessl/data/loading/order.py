"""The order of an epoch: a pure function of seed and epoch, and of what lies near what.

Pictures in separate files, arrays or a cache are permuted. Of pictures in shards, which lie on
spinning disks or behind URLs, neighbours are read together at little more than the cost of one:
shards are permuted and taken in groups of at least `GROUP` pictures, and inside a group runs of
`RUN` neighbours are permuted. Shards of `wessl pack` hold pictures in random order, so a run is a
random sample, and a batch is one of many runs from many shards.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wessl.data.labelled.splits import seeded

GROUP = 65_536
RUN = 8


def epoch_order(seed: int, epoch: int, n: int, blocks: NDArray[np.int64] | None = None) -> Tensor:
    """The order in which an epoch visits `n` pictures; `blocks` as in `Source`.

    >>> first_batch = epoch_order(seed=0, epoch=3, n=1000)[:64]
    """
    generator = seeded(seed, "order", epoch)
    if blocks is None:
        return torch.randperm(n, generator=generator)
    counts = torch.as_tensor(blocks)
    starts = counts.cumsum(0) - counts
    parts = []
    for group in _groups(counts, torch.randperm(len(counts), generator=generator)):
        near = torch.cat([torch.arange(int(starts[i]), int(starts[i] + counts[i])) for i in group])
        runs = torch.randperm(-(-len(near) // RUN), generator=generator)
        places = (runs[:, None] * RUN + torch.arange(RUN)).flatten()
        parts.append(near[places[places < len(near)]])
    return torch.cat(parts)


def _groups(counts: Tensor, shuffled: Tensor) -> list[list[int]]:
    """Shards in the given order, cut wherever `GROUP` pictures are reached; no small last one."""
    groups, held = [list[int]()], 0
    left = int(counts.sum())
    for shard in shuffled.tolist():
        if held >= GROUP and left >= GROUP:
            groups.append([])
            held = 0
        groups[-1].append(shard)
        held += int(counts[shard])
        left -= int(counts[shard])
    return groups
