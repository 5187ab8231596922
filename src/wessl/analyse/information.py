"""What one head's code of a picture tells about another head's: mutual information, in nats."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

SHUFFLES = 4
"""Shuffles over which the level of chance is averaged."""


@dataclass(frozen=True)
class Information:
    """Between the likeliest codes of every two heads; on the diagonal, a head and itself.

    Many codes and few pictures coincide by accident, so unrelated heads do not measure zero:
    ``chance_mm`` is what they measure, found by shuffling the pictures of one. ``adjusted_mm`` is
    ``(mutual - chance) / (mean entropy of the two - chance)``: 0 for chance, 1 for copies.
    """

    mutual_mm: Tensor
    chance_mm: Tensor
    adjusted_mm: Tensor


def mutual_information(code_mn: Tensor, codes: int) -> Information:
    """From the likeliest codes ``(m, n)`` of ``n`` pictures, each below ``codes``.

    >>> one = torch.arange(1000) % 10
    >>> unrelated = torch.randint(10, (1000,), generator=torch.Generator().manual_seed(0))
    >>> found = mutual_information(torch.stack([one, 9 - one, unrelated]), codes=10)
    >>> found.mutual_mm[0, 1].exp().round(), found.adjusted_mm[0, 2].round(decimals=1).abs()
    (tensor(10., dtype=torch.float64), tensor(0., dtype=torch.float64))
    """
    code_mn = code_mn.long()
    m, n = code_mn.shape
    entropies = [entropy(head_n) for head_n in code_mn]
    generator = torch.Generator().manual_seed(0)
    orders = [torch.randperm(n, generator=generator).to(code_mn.device) for _ in range(SHUFFLES)]
    mutual, chance = torch.zeros(2, m, m, dtype=torch.float64)
    for i in range(m):
        for j in range(i, m):
            apart = entropies[i] + entropies[j]
            first_n, second_n = code_mn[i] * codes, code_mn[j]
            mutual[i, j] = mutual[j, i] = apart - entropy(first_n + second_n)
            together = [entropy(first_n + second_n[order]) for order in orders]
            chance[i, j] = chance[j, i] = apart - math.fsum(together) / SHUFFLES
    own = torch.tensor(entropies, dtype=torch.float64)
    room = (own[:, None] + own) / 2 - chance
    # No room: both give every picture one code, or every picture its own; either way they agree.
    adjusted = torch.where(room > 1e-9, (mutual - chance) / room.clamp_min(1e-9), 1.0)
    return Information(mutual.clamp_min(0), chance.clamp_min(0), adjusted)


def entropy(values_n: Tensor) -> float:
    """Entropy of how often each value occurs."""
    counts = values_n.unique(return_counts=True)[1].double()
    n = len(values_n)
    return math.log(n) - float(torch.special.xlogy(counts, counts).sum()) / n
