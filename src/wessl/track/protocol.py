"""What every tracker can do, and what it is told when it opens."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

Values = dict[str, float]
State = dict[str, Any]


@dataclass(frozen=True)
class Start:
    """A run as it begins or goes on."""

    folder: Path
    """The run folder."""
    id: str
    """Of the tracker's run, the same whenever this run goes on."""
    header: State
    """``config.json``."""
    step: int
    """Steps done; what a killed process told of later ones will be done again."""
    first: bool
    """Nothing was told before."""
    left_open: str = ""
    """The session of a process that was killed."""


class Tracker(Protocol):
    """Any call may raise: then the tracker hears no more, and training goes on."""

    keeps: bool
    """Whether what it was told survives a kill; if not, it is told again."""
    rewinds: bool
    """Whether it forgets, on opening, the steps that will be done again."""
    holds: int | None
    """The last step it has as it opens; None: it cannot tell."""
    session: str
    """Where this process tells it, for a ``Start`` after a kill."""
    where: str
    """For the user: where to look."""

    def scalars(self, step: int, values: Values) -> None: ...

    def message(self, step: int, words: str) -> None: ...

    def final(self, step: int, values: Values) -> None: ...

    def close(self, failed: bool) -> None: ...
