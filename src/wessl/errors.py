"""What ends a command in words instead of a traceback."""

import difflib
import shlex
import signal
import sys
from collections.abc import Iterable


def pip_install(what: str) -> str:
    """The command that installs for the Python that runs us, not for the system's."""
    return f"{shlex.quote(sys.executable)} -m pip install {what}"


def did_you_mean(word: str, names: Iterable[str], like: float = 0.6) -> str:
    """The question, with a space after it, where a name is like the word; else nothing.

    >>> did_you_mean("dpth", ["depth", "dim"]), did_you_mean("budget", ["depth", "dim"])
    ('did you mean depth? ', '')
    """
    near = difflib.get_close_matches(word, list(names), 1, like)
    return f"did you mean {near[0]}? " if near else ""


class UserError(ValueError):
    """A user's mistake: the message names the flag or file and the remedy."""

    exit_code = 2


class Failure(UserError):
    """Nobody's mistake, but the work cannot go on: a full disk, no memory, NaN, broken files."""

    exit_code = 1


class Busy(UserError):
    """Another process is at it; when that is done, the same may be asked again."""


class Diverged(Failure):
    """Training broke down in NaN or infinite numbers."""


class Lost(Failure):
    """Something is gone that was there a moment ago; another try may find it again."""


class Interrupted(KeyboardInterrupt):
    """Asked to stop by a signal; like Ctrl-C, nothing that catches mere errors swallows it."""

    def __init__(self, signum: int, words: str):
        super().__init__(signum, words)  # as given, so that it survives pickling
        self.signum, self.words = signum, words

    def __str__(self) -> str:
        return f"stopped by {signal.Signals(self.signum).name} {self.words}"
