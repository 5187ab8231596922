"""Pictures of different sizes in one stream of tokens."""

from typing import NamedTuple

import torch
from torch import Tensor


class Segments(NamedTuple):
    """How batches share a stream ``(T, dim)``: one after the other, picture by picture.

    >>> segments = Segments([2, 1], [3, 4])
    >>> [tuple(part.shape) for part in segments.split(torch.zeros(10, 5))]
    [(2, 3, 5), (1, 4, 5)]
    >>> segments.spread(torch.tensor([7, 8, 9]))
    tensor([7, 7, 7, 8, 8, 8, 9, 9, 9, 9])
    """

    pictures: list[int]
    """Of each batch."""
    tokens: list[int]
    """Of each of its pictures."""

    @classmethod
    def of(cls, *batches: Tensor) -> "Segments":
        """Of tokens ``(b, n, ...)`` each."""
        return cls([x.shape[0] for x in batches], [x.shape[1] for x in batches])

    def rows(self) -> list[int]:
        """Tokens of each batch."""
        return [b * n for b, n in zip(self.pictures, self.tokens, strict=True)]

    def split(self, stream: Tensor) -> list[Tensor]:
        """``(T, ...)`` to each batch's ``(b, n, ...)``, all of them views."""
        parts = zip(stream.split(self.rows()), self.pictures, self.tokens, strict=True)
        return [part.unflatten(0, (b, n)) for part, b, n in parts]

    def split_pictures(self, x: Tensor) -> list[Tensor]:
        """``(pictures, ...)`` to each batch's ``(b, ...)``, all of them views."""
        return list(x.split(self.pictures))

    def first_tokens(self, stream: Tensor) -> Tensor:
        """``(T, ...)`` to every picture's first, ``(pictures, 1, ...)``."""
        return torch.cat([part[:, :1] for part in self.split(stream)])

    def spread(self, x: Tensor) -> Tensor:
        """``(..., pictures)`` to ``(..., T)``: each token has what its picture has."""
        parts = zip(x.split(self.pictures, -1), self.tokens, strict=True)
        return torch.cat([part.repeat_interleave(n, -1) for part, n in parts], -1)
