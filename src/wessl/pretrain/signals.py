"""Signals that ask a training to save itself, or to save itself and stop."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

from wessl.errors import Interrupted

SAVE = 1
"""Below every signal to stop, which says more: whoever stops saves too."""


@contextlib.contextmanager
def listening(nothing_new: Callable[[], bool]) -> Iterator[list[int]]:
    """Collects the signals that mean "save now"; a second Ctrl-C stops at once.

    While there is nothing new to save, as in the minutes of a first, compiled step, the first
    signal to stop does too.
    """
    caught: list[int] = []

    def note(signum: int, frame: FrameType | None) -> None:
        again = signum == signal.SIGINT and signal.SIGINT in caught
        caught.append(signum)  # also where an import of the first step swallows the exception
        if signum != signal.SIGUSR1 and nothing_new():
            raise Interrupted(signum, "before the first step; the same command goes on")
        if again:
            raise Interrupted(
                signum, "at once; what was not saved is lost, the same command goes on"
            )

    watched = [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1]
    try:
        before = {s: signal.signal(s, note) for s in watched}
    except ValueError:  # not the main thread: the caller keeps its own handlers
        before = {}
    try:
        yield caught
    finally:
        for s, handler in before.items():
            signal.signal(s, handler)


def take(caught: list[int]) -> int:
    """What was asked for since the last time: the signal to stop by, ``SAVE``, or 0.

    >>> take([signal.SIGINT, signal.SIGUSR1]), take([signal.SIGUSR1]), take([])
    (2, 1, 0)
    """
    asked = max((SAVE if s == signal.SIGUSR1 else int(s) for s in caught), default=0)
    caught.clear()
    return asked
