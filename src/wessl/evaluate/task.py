"""What is to be learnt and tested: two sets of pictures, labels in one numbering."""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from wessl.data.cache.cache import PictureCache
from wessl.data.cache.digest import pictures_digest
from wessl.errors import UserError
from wessl.evaluate.contestants import Contestant
from wessl.evaluate.protocol import Labelled
from wessl.evaluate.settings import Precision

Side = dict[str, Labelled]
"""Labelled features by reading."""


@dataclass(frozen=True)
class Task:
    """Pictures to learn labels from and pictures to be tested on."""

    train: PictureCache
    test: PictureCache
    train_labels: Tensor
    test_labels: Tensor
    train_rows: Tensor | None = None
    test_rows: Tensor | None = None
    """Which pictures of the caches count; None for all. Both caches may be the same one."""
    known: int = 0
    """How many test pictures are among the training pictures too."""

    @cached_property
    def digests(self) -> tuple[str, str]:
        """Of the training and of the test side; either changes with any picture or label of it."""
        train = side_digest(self.train, self.train_labels, self.train_rows)
        return train, side_digest(self.test, self.test_labels, self.test_rows)

    @property
    def classes(self) -> list[str] | None:
        return self.train.classes

    def features(self, contestant: Contestant, precision: Precision) -> tuple[Side, Side]:
        """Of the training and of the test pictures; stops at NaN and names the pictures."""
        train, test = contestant.features(self.train, self.test, precision)
        sides = []
        for found, cache, rows, labels, flag in (
            (train, self.train, self.train_rows, self.train_labels, "--train"),
            (test, self.test, self.test_rows, self.test_labels, "--test"),
        ):
            side = {}
            for reading, values in found.items():
                own = values if rows is None else values[rows]
                _check_finite(own, cache, rows, f"{contestant.name}, {reading} of {flag}")
                side[str(reading)] = Labelled(own, labels, self.classes)
            sides.append(side)
        return sides[0], sides[1]


def side_digest(cache: PictureCache, labels: Tensor, rows: Tensor | None = None) -> str:
    """Of decoded pictures, those that count, their labels and the classes' names."""
    digest = hashlib.sha256(f"{pictures_digest(cache)} {cache.classes}".encode())
    for part in (labels, torch.arange(len(labels)) if rows is None else rows):
        digest.update(part.long().contiguous().numpy().data)
    return digest.hexdigest()


def _check_finite(features: Tensor, cache: PictureCache, rows: Tensor | None, where: str) -> None:
    # The largest entry of a row is finite when all are, and needs no mask as large as the features.
    bad = torch.linalg.vector_norm(features, torch.inf, dim=1).isfinite().logical_not()
    numbers = bad.nonzero().flatten() if rows is None else rows[bad]
    if len(numbers):
        some = ", ".join(cache.names[i] for i in numbers[:5].tolist())
        raise UserError(
            f"{where}: the encoder gives NaN or infinite features for {len(numbers)} of "
            f"{len(features)} pictures: {some}{', ...' * (len(numbers) > 5)}"
        )
