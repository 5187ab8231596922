"""When a run saves itself: soon enough to lose little, seldom enough to cost little."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterator

LONGEST = 300.0
"""Seconds without a checkpoint, by default."""
PARTS = 10
"""Into which checkpoints divide a shorter run, by default."""
DISTANCE = 50
"""From one save to the next, in saves: they then cost a fiftieth of the time."""
FIRST = 10
"""From the start to the first save, in saves: until then a run that is killed loses everything."""
FURTHEST = 1800.0
"""Seconds from one save to the next whatever they cost, by default."""
BYTES_PER_SECOND = 3e8
"""Of a save, its checksum read back, before one was timed: as measured on a virtual disk."""


def checkpoints_kept(asked: int | None) -> int:
    """Checkpoints while a run is under way: two by default, as one may be damaged."""
    return 2 if asked is None else max(1, asked)


class Saving:
    """Which steps are due for a checkpoint.

    With ``--save-every N``, whenever N seconds have passed since the last one. By default, whenever
    300 s have passed or a tenth of the run's steps is done since then, whichever comes first, but
    not before 50 times as long has passed as a save takes, so that saves cost about 2 % of the
    time, or half an hour; for a run's first, 10 times as long. A save takes as long as the quicker
    of the last two, since one alone may have met a busy disk; before them, as its bytes let expect.

    By the clock of one process, which differs from the next one's: of a team the first one's word
    counts for all (``Team.agree``).

    >>> saving = Saving(None, steps=100, step=0, size=0)
    >>> saving.due(9), saving.due(10)
    (False, True)
    """

    def __init__(
        self,
        every: float | None,
        steps: int,
        step: int,
        size: float,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self.every, self.steps, self.clock = every, steps, clock
        self.expected, self.costs = size / BYTES_PER_SECOND, deque[float](maxlen=2)
        self.saved = self.asked = clock()
        self.step = step
        self.distance = FIRST if step == 0 else DISTANCE

    def due(self, step: int) -> bool:
        """Whether it is time to save; true once, as a team saves only a step later."""
        now = self.clock()
        passed = now - self.asked
        if self.every is not None:
            due = passed > self.every
        else:
            much = passed > LONGEST or PARTS * (step - self.step) >= self.steps
            cost = min(self.costs, default=self.expected)
            due = much and passed >= min(self.distance * cost, FURTHEST)
        if due:
            self.asked, self.step = now, step
        return due

    @contextlib.contextmanager
    def timed(self, step: int) -> Iterator[float]:
        """Around a save, whoever asked for it; gives the seconds from the last one to this."""
        before, self.saved = self.saved, self.clock()
        self.asked, self.step = self.saved, step
        yield self.saved - before
        now = self.clock()
        self.costs.append(now - self.saved)
        self.distance = DISTANCE
        if self.every is None:
            self.asked = now  # a save that took minutes is not followed by the next
