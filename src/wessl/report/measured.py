"""Evaluations of several runs brought together, so that only like is compared with like."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from wessl.report.markup import finite
from wessl.report.repeats import groups
from wessl.report.story import State, Story, listed, numbers, part


@dataclass(frozen=True)
class Row:
    """A line of the table: a run's, or what it is compared with."""

    name: str
    role: str
    results: State
    run: int | None = None
    """Which of the runs, for a run's own row; ``colour`` is its method's."""
    colour: int | None = None

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

    @property
    def main(self) -> str:
        """The column to speak of: the first, which asks for the fewest labels."""
        return self.columns[0] if self.columns else ""

    @property
    def runs(self) -> list[Row]:
        return [row for row in self.rows if row.role == "run"]


def collect(stories: Sequence[Story]) -> list[Measured]:
    """Evaluations grouped by their pictures: only such numbers may stand in one table."""
    alike: dict[str, list[tuple[int, State]]] = {}
    for i, story in enumerate(stories):
        for result in story.of_kind("evaluation"):
            places = [part(result, side) for side in ("train", "test")]
            key = repr([place.get("digest") or place.get("location") for place in places])
            alike.setdefault(key, []).append((i, result))
    return [_measured(results, stories) for results in alike.values()]


def _measured(results: Sequence[tuple[int, State]], stories: Sequence[Story]) -> Measured:
    columns: dict[str, None] = {}
    rows: list[Row] = []
    for i, result in results:
        named = result.get("columns")
        columns |= dict.fromkeys(map(str, named) if isinstance(named, list) else ())
        for given in listed(result, "rows"):
            row = _row(given, i, stories)
            if any((row.name, row.results) == (old.name, old.results) for old in rows):
                continue  # raw pixels are the same for every run
            if row.run is None and any(row.name == old.name for old in rows):
                row = replace(row, name=f"{row.name} ({stories[i].name})")
            rows.append(row)
    rows.sort(key=lambda row: row.role != "run")
    first = results[0][1]
    return Measured(part(first, "train"), part(first, "test"), list(columns), rows)


def _row(given: State, i: int, stories: Sequence[Story]) -> Row:
    name, role = str(given.get("name", "?")), str(given.get("role"))
    if role != "run":
        return Row(name, role, part(given, "results"))
    name = stories[i].name if len(stories) > 1 else name
    return Row(name, role, part(given, "results"), i, groups(stories)[i])


def transferred(stories: Sequence[Story]) -> list[Measured]:
    """Accuracies on other datasets, a column each, in at most one table."""
    columns: dict[str, None] = {}
    rows = []
    for i, (story, colour) in enumerate(zip(stories, groups(stories), strict=True)):
        for result in story.of_kind("transfer"):
            found = part(result, "results")
            columns |= dict.fromkeys(found)
            rows.append(Row(story.name, "run", found, i, colour))
    return [Measured({}, {}, list(columns), rows)] if columns else []


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
