"""Which few labels an evaluation may see: stratified draws that are the same on every machine."""

import hashlib
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from wessl.errors import UserError


def seeded(*key: int | str) -> torch.Generator:
    """A CPU generator that depends on all of `key`, unlike `seed + epoch`, which would collide.

    >>> order = torch.randperm(10, generator=seeded(0, "epoch", 3))
    """
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def few_shot_draws(
    labels: Tensor, shots: int, draws: int, seed: int = 0, classes: Sequence[str] | None = None
) -> list[Tensor]:
    """`draws` lists of picture indices with `shots` of every class, sorted.

    For one seed the 1-shot draws lie inside the 2-shot draws, and those inside the 5-shot draws.

    >>> labels = torch.tensor([0, 1, 2]).repeat(10)
    >>> [labels[chosen].bincount().tolist() for chosen in few_shot_draws(labels, shots=5, draws=2)]
    [[5, 5, 5], [5, 5, 5]]
    """
    if shots < 1 or draws < 1:
        raise UserError(f"shots and draws must be at least 1; found {shots} and {draws}")
    values, counts = labels.unique(return_counts=True)
    if short := torch.nonzero(counts < shots).flatten().tolist():
        value = int(values[short[0]])
        name = f"class {classes[value]!r}" if classes is not None else f"class {value}"
        there = int(counts[short[0]])
        more = f" ({len(short)} classes have too few)" if len(short) > 1 else ""
        raise UserError(
            f"{name} has {there} picture{'s' * (there != 1)}, fewer than {shots} shots{more}"
        )
    return _draw(labels, draws, seed, lambda counts: torch.full_like(counts, shots))


def fraction_draws(labels: Tensor, fraction: float, draws: int, seed: int = 0) -> list[Tensor]:
    """As `few_shot_draws`, with this share of every class, rounded, and at least one picture.

    >>> labels = torch.tensor([0, 1, 2]).repeat(200)
    >>> one_percent = fraction_draws(labels, 0.01, draws=1)[0]
    >>> labels[one_percent].bincount().tolist()
    [2, 2, 2]
    """
    if not 0 < fraction <= 1 or draws < 1:
        raise UserError(f"need 0 < fraction <= 1 and draws >= 1; found {fraction} and {draws}")
    return _draw(labels, draws, seed, lambda counts: (counts * fraction).round().long().clamp(1))


def held_out(labels: Tensor, share: float, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Rows to keep and rows to hold out, both sorted: this share of every class, rounded.

    Every class keeps at least one picture, and one with two or more gives at least one up.

    >>> kept, held = held_out(torch.tensor([0, 1, 2]).repeat(10), 0.2)
    >>> len(kept), len(held)
    (24, 6)
    """
    if not 0 < share < 1:
        raise UserError(f"need 0 < share < 1 of the labels to hold out; found {share}")

    def take(counts: Tensor) -> Tensor:
        return (counts * share).round().long().clamp(1).minimum(counts - 1)

    (held,) = _draw(labels, 1, seed, take, "held out")
    kept = torch.ones(len(labels), dtype=torch.bool).index_fill_(0, held, False)
    return kept.nonzero().flatten(), held


def _draw(
    labels: Tensor,
    draws: int,
    seed: int,
    take: Callable[[Tensor], Tensor],
    purpose: str = "labels",
) -> list[Tensor]:
    labels = labels.cpu()
    _, number, counts = labels.unique(return_inverse=True, return_counts=True)
    first_of_class = counts.cumsum(0) - counts
    chosen = []
    for draw in range(draws):
        shuffled = torch.randperm(len(labels), generator=seeded(seed, purpose, draw))
        by_class = shuffled[number[shuffled].argsort(stable=True)]
        # A picture's place within its shuffled class does not depend on how many are taken:
        # this is what makes smaller draws lie inside larger ones.
        place = torch.arange(len(labels)) - first_of_class[number[by_class]]
        chosen.append(by_class[place < take(counts)[number[by_class]]].sort().values)
    return chosen
