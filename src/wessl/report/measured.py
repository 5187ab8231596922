"""Numbers measured on the same pictures, and what may be said of them."""

import math
from dataclasses import dataclass, field, replace

from wessl.report.intervals import ends_of
from wessl.report.markup import finite
from wessl.report.story import State, numbers, part
from wessl.report.words import too_good_words

STUDENT = " (student)"
"""After the name of a run whose student was measured, not its teacher."""


@dataclass(frozen=True)
class Row:
    """A line of the table: a run's, or what it is compared with."""

    name: str
    role: str
    results: State
    run: int | None = None
    """Which of the runs, for a run's own row; ``colour`` is its method's."""
    colour: int | None = None
    weights: str | None = None
    """Their digest, by which other runs know it."""
    student: bool = False
    """Whether the run's student was measured, not its teacher."""

    def of(self, column: str) -> State:
        return part(self.results, column)

    def accuracy(self, column: str) -> float | None:
        return finite(self.of(column).get("accuracy"))


@dataclass(frozen=True)
class Measured:
    """All that was measured on the same pictures."""

    train: State
    test: State
    columns: list[str]
    rows: list[Row]
    gains: list[tuple[int, State]] = field(default_factory=list)
    """What runs keep of each other: the number of the run that was the base, and the others' gain
    on it, with its interval."""
    notes: list[str] = field(default_factory=list)
    """What the measurement itself had to say, such as that it knows some test pictures."""
    differ: bool = False
    """Whether one name stands for several protocols, and so for several columns."""

    def gain(self, row: Row, base: Row, column: str) -> tuple[float, float] | None:
        """The paired interval of one run's gain on another, if they were measured together."""
        for one, other, sign in ((row, base, 1), (base, row, -1)):
            for i, kept in self.gains:
                if (i, kept.get("student")) != (other.run, other.student):
                    continue
                if kept.get("weights") != one.weights or one.weights is None:
                    continue
                found = part(part(kept, "results"), column)
                ends = numbers(found.get("interval"))
                if ends is None or len(ends) != 2 or not _still(found, one, other, column):
                    continue
                low, high = sorted(sign * end for end in ends)
                return low, high
        return None

    def surely_best(self, column: str) -> Row | None:
        """The best row, if no other may be as good: by the paired gain, else by both intervals."""
        scores = [(a, row) for row in self.rows if (a := row.accuracy(column)) is not None]
        if len(scores) < 2:
            return None
        first = max(scores, key=lambda pair: pair[0])[1]
        others = [row for _, row in scores if row is not first]
        return first if all(self._surely(first, other, column) for other in others) else None

    def _surely(self, row: Row, base: Row, column: str) -> bool:
        if gain := self.gain(row, base, column):
            return gain[0] > 0
        ours, theirs = ends_of(row.of(column)), ends_of(base.of(column))
        return ours is not None and theirs is not None and ours[0] > theirs[1]

    @property
    def main(self) -> str:
        """The column to speak of: of those that all runs have the first, with the fewest labels."""
        shared = [c for c in self.columns if all(r.accuracy(c) is not None for r in self.runs)]
        return (shared or self.columns or [""])[0]

    @property
    def too_good(self) -> str:
        """In words, for wherever a number stands: how many test pictures had been seen labelled."""
        return too_good_words(self.test)

    @property
    def chance(self) -> float | None:
        """What guessing gives, as far as the number of classes is known."""
        classes = finite(self.train.get("classes"))
        return 1 / classes if classes else None

    def guessed(self, row: Row, column: str) -> bool:
        """Whether a number is not surely better than guessing."""
        low = (ends_of(row.of(column)) or (row.accuracy(column),))[0]
        return low is not None and self.chance is not None and low <= self.chance

    @property
    def runs(self) -> list[Row]:
        return [row for row in self.rows if row.role == "run"]

    @property
    def by_network(self) -> list["Measured"]:
        """The runs' teachers, and apart from them their students."""
        sides = [[r for r in self.rows if r.role != "run" or r.student == s] for s in (False, True)]
        return [replace(self, rows=rows) for rows in sides]


def _still(found: State, one: Row, other: Row, column: str) -> bool:
    """Whether a difference is that of the numbers that stand here: either may be newer."""
    a, b, gain = one.accuracy(column), other.accuracy(column), finite(found.get("difference"))
    return None not in (a, b, gain) and abs((a or 0) - (b or 0) - (gain or 0)) < 1e-9


def paired_error(a: State, b: State) -> float | None:
    """Standard error of the mean difference, when both were drawn alike."""
    first, second = (numbers(side.get("per_draw")) for side in (a, b))
    if first is None or second is None or part(a, "protocol") != part(b, "protocol"):
        return None
    if len(first) != len(second) or len(first) < 2:
        return None
    gains = [x - y for x, y in zip(first, second, strict=True)]
    mean = sum(gains) / len(gains)
    variance = sum((g - mean) ** 2 for g in gains) / (len(gains) - 1)
    return math.sqrt(variance / len(gains))
