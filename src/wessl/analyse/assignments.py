"""Which pictures go to which code: statistics of the heads' assignments, batch by batch.

Nothing here grows with pictures times codes. Of a code we keep its inner products with the codes
of all other heads; of a picture, each head's likeliest code and entropy.
"""

import os
from itertools import combinations

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from wessl.errors import UserError

_SCALE = 2.0**40
"""A power of two rounds nothing, and keeps the squares of a rare code's probabilities in fp32."""
_BLOCK = 1024
"""Pictures taken at once: enough for full speed, little enough to copy."""


class Assignments:
    """Takes probabilities ``(m, n, c)`` of one batch of pictures after another.

    A code's embedding is its column: the probabilities all pictures give it. For every pair of
    heads the products of their columns are summed here, 4 c² bytes a pair.

    >>> assignments = Assignments(heads=2, codes=3)
    >>> for _ in range(4):
    ...     assignments.add(torch.rand(2, 50, 3).softmax(-1))
    >>> assignments.cosines(0).shape, assignments.entropy_mn.shape
    (torch.Size([3, 3]), torch.Size([2, 200]))
    """

    def __init__(self, heads: int, codes: int, device: str | torch.device = "cpu"):
        self.m, self.c = heads, codes
        self.pairs = list(combinations(range(heads), 2))
        self.device = torch.device(device)
        self.mass_mc = torch.zeros(heads, codes, dtype=torch.float64, device=device)
        self._squares_mc = torch.zeros_like(self.mass_mc)
        self._grams_pcc = self._room_for_grams()
        self._codes: list[Tensor] = []
        self._entropies: list[Tensor] = []

    def _room_for_grams(self) -> Tensor:
        shape = (len(self.pairs), self.c, self.c)
        need = 4 * len(self.pairs) * self.c**2
        # An ordinary allocation would succeed here, and the process be killed when it is filled.
        if self.device.type == "cpu" and need > os.sysconf("SC_PAGE_SIZE") * os.sysconf(
            "SC_PHYS_PAGES"
        ):
            raise self._too_large(need)
        try:
            return torch.zeros(shape, device=self.device)
        except torch.OutOfMemoryError:
            raise self._too_large(need) from None

    def _too_large(self, need: int) -> UserError:
        return UserError(
            f"comparing {self.m} heads of {self.c} codes needs {need / 1e9:.0f} GB of memory on "
            f"{self.device}; use a machine that has it"
        )

    def add(self, probabilities_mnc: Tensor) -> None:
        if probabilities_mnc.dim() != 3 or probabilities_mnc.shape[::2] != (self.m, self.c):
            found = tuple(probabilities_mnc.shape)
            raise ValueError(f"expected probabilities ({self.m}, n, {self.c}), got {found}")
        for block in probabilities_mnc.to(self.device, torch.float32).split(_BLOCK, 1):
            self._add(block)

    def _add(self, p_mnc: Tensor) -> None:
        self._entropies.append(torch.special.entr(p_mnc).sum(-1))
        self._codes.append(p_mnc.argmax(-1).int())
        self.mass_mc += p_mnc.sum(1)
        columns_mnc = p_mnc * _SCALE
        self._squares_mc += torch.linalg.vector_norm(columns_mnc, dim=1).double().square()
        for gram_cc, (i, j) in zip(self._grams_pcc, self.pairs, strict=True):
            gram_cc.addmm_(columns_mnc[i].T, columns_mnc[j])

    def join(self, group: ProcessGroup) -> None:
        """Takes in what the group's other processes added; all then hold all of it.

        Pictures come in the order of the processes.
        """
        for total in (self.mass_mc, self._squares_mc, self._grams_pcc):
            dist.all_reduce(total, group=group)
        self._codes = [_in_order(self.code_mn, group)]
        self._entropies = [_in_order(self.entropy_mn, group)]

    def __len__(self) -> int:
        return sum(part.shape[1] for part in self._codes)

    def cosines(self, pair: int) -> Tensor:
        """Similarity ``(c, c)`` of the codes of ``pairs[pair]``; 0 where a code is never given."""
        i, j = self.pairs[pair]
        a, b = self._lengths(i), self._lengths(j)
        return (self._grams_pcc[pair] / a[:, None] / b).clamp(0, 1)

    def _lengths(self, head: int) -> Tensor:
        length = self._squares_mc[head].sqrt().float()
        return length.where(length > 0, 1)

    @property
    def silent_m(self) -> Tensor:
        """How many codes of each head get no probability from any picture, to fp32."""
        return (self._squares_mc == 0).sum(1)

    @property
    def code_mn(self) -> Tensor:
        """The likeliest code of every picture."""
        none = torch.empty(self.m, 0, dtype=torch.int32, device=self.device)
        return torch.cat([none, *self._codes], 1)

    @property
    def entropy_mn(self) -> Tensor:
        """Entropy of every picture's assignment, in nats."""
        return torch.cat([torch.empty(self.m, 0, device=self.device), *self._entropies], 1)


def _in_order(values_mn: Tensor, group: ProcessGroup) -> Tensor:
    """The processes' columns side by side, though each may have another number of them."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    counts = torch.zeros(world, dtype=torch.int64, device=values_mn.device)
    counts[rank] = values_mn.shape[1]
    dist.all_reduce(counts, group=group)
    before = int(counts[:rank].sum())
    whole = values_mn.new_zeros(len(values_mn), int(counts.sum()))
    whole[:, before : before + values_mn.shape[1]] = values_mn
    dist.all_reduce(whole, group=group)
    return whole
