"""Works timed in turns, so that whatever else the machine does falls on all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch

from wessl.pretrain.loop import wait_for

Work = Callable[[], object]
Name = TypeVar("Name")
UNEVEN = 1.5
"""Times as long as another round, from which on one was disturbed."""


@dataclass(frozen=True)
class Measured:
    """One way of doing one piece of work: a row of the table and of the file."""

    section: str
    """step, views, loader or few-shot."""
    subject: str
    """What was done, with its sizes: two rows of one subject did the same to each item."""
    way: str
    """By whom: wessl, or what it is compared with."""
    rounds: list[float]
    """Seconds of each round."""
    items: int
    """Pictures (or fits) in a round."""
    facts: dict[str, float] = field(default_factory=dict)
    """Whatever else was found: bytes of memory, share of the chip's rate, how good a fit is."""

    @property
    def seconds(self) -> float:
        return statistics.median(self.rounds)

    @property
    def uneven(self) -> bool:
        """Whether something else was at work in some rounds."""
        return max(self.rounds) > UNEVEN * min(self.rounds)

    @property
    def by_item(self) -> list[float]:
        return [seconds / self.items for seconds in self.rounds]

    @property
    def key(self) -> tuple[str, str, str]:
        return self.section, self.subject, self.way


def times_as_fast(rounds: Sequence[float], others: Sequence[float]) -> float:
    """As another way is: the median over rounds, in each of which both had the same machine."""
    return statistics.median(b / a for a, b in zip(rounds, others, strict=True))


def in_turns(
    works: Mapping[Name, Work],
    device: torch.device,
    seconds: float,
    least: int = 3,
    most: int = 15,
    warm: int = 1,
    between: Work = lambda: None,
) -> dict[Name, list[float]]:
    """Seconds of every work in every round: ``least`` rounds, and more while ``seconds`` last.

    ``warm`` rounds before them do not count, nor does what is done ``between`` rounds.
    """
    times: dict[Name, list[float]] = {name: [] for name in works}
    for _ in range(warm):
        for work in works.values():
            work()
    began = time.perf_counter()
    for turn in range(most):
        if turn >= least and time.perf_counter() - began > seconds:
            break
        for name, work in works.items():
            times[name].append(timed(work, device))
        between()
    return times


def timed(work: Work, device: torch.device) -> float:
    wait_for(device)
    start = time.perf_counter()
    work()
    wait_for(device)
    return time.perf_counter() - start
