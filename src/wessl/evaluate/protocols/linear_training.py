"""The order, length and learning rates of a linear evaluation's training, and its loop."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from wessl.data.loading.loader import epoch_order
from wessl.errors import UserError
from wessl.evaluate.classifiers.linear_grid import LinearGrid
from wessl.evaluate.features.passes import Progress

Feed = Callable[[int, Tensor, Callable[[int], None]], Mapping[Any, Tensor]]
"""From a step, its pictures and a report of how many are done, to their features by reading."""


@dataclass(frozen=True)
class Schedule:
    """Which pictures each step sees, and the factor on every base learning rate.

    An epoch is cut into equal batches of at most `batch_size`, so that every picture counts in it
    and no batch is a small rest. Rates grow with the batch, `base * batch / 256`, and fall along a
    cosine from step to step.
    """

    pictures: int
    batch_size: int
    epochs: int
    lrs: Sequence[float]
    seed: int

    def __post_init__(self) -> None:
        if self.batch_size < 1 or self.epochs < 1:
            found = f"{self.batch_size} and {self.epochs}"
            raise UserError(f"batch size and epochs must be 1 or more, not {found}")
        if not self.lrs or min(self.lrs) <= 0:
            raise UserError(f"learning rates must be one or more above 0, not {list(self.lrs)}")

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(self.pictures / self.batch_size)

    @property
    def largest_batch(self) -> int:
        return math.ceil(self.pictures / self.steps_per_epoch)

    @property
    def scale(self) -> float:
        """The factor of the first step."""
        return self.pictures / self.steps_per_epoch / 256

    def batches(self) -> Iterator[tuple[Tensor, float]]:
        steps = self.epochs * self.steps_per_epoch
        for epoch in range(self.epochs):
            order = epoch_order(self.seed, epoch, self.pictures)
            for i, rows in enumerate(order.tensor_split(self.steps_per_epoch)):
                done = (epoch * self.steps_per_epoch + i) / steps
                yield rows, self.scale * (1 + math.cos(math.pi * done)) / 2


def fit(
    grids: Mapping[Any, LinearGrid],
    schedule: Schedule,
    target: Tensor,
    feed: Feed,
    progress: Progress | None,
) -> None:
    """Train all grids by one pass; `progress` counts pictures, each once an epoch."""
    total, seen = schedule.epochs * schedule.pictures, 0

    def report(done: int) -> None:
        if progress is not None:
            progress(seen + done, total)

    for step, (rows, scale) in enumerate(schedule.batches()):
        features = feed(step, rows, report)
        for name, grid in grids.items():
            grid.step(features[name], target[rows], scale)
        seen += len(rows)
