"""Runs that differ in their seed alone are repetitions of one method: their mean is what counts."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from wessl.report.columns import head_row
from wessl.report.markup import Markup, number, signed, tag
from wessl.report.measured import STUDENT, Measured, Row
from wessl.report.repeats import method_names, seed_of
from wessl.report.story import Story
from wessl.report.words import count


@dataclass(frozen=True)
class Method:
    """Runs of one configuration, their teachers or their students, by seed."""

    name: str
    rows: dict[int, Row]

    def accuracies(self, column: str) -> dict[int, float]:
        found = {seed: row.accuracy(column) for seed, row in self.rows.items()}
        return {seed: accuracy for seed, accuracy in found.items() if accuracy is not None}

    def mean(self, column: str) -> tuple[float, float | None] | None:
        values = list(self.accuracies(column).values())
        return mean_and_error(values) if values else None


def methods(measured: Measured, stories: Sequence[Story]) -> list[Method]:
    """The measured runs by method; nothing if none was repeated."""
    found: dict[tuple[int, bool], dict[int, Row]] = {}
    for row in measured.runs:
        if row.run is not None and row.colour is not None:
            found.setdefault((row.colour, row.student), {})[seed_of(stories[row.run])] = row
    if all(len(rows) < 2 for rows in found.values()):
        return []
    names = method_names(stories)
    return [Method(names[n] + STUDENT * student, rows) for (n, student), rows in found.items()]


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """The mean, and its standard error when there are two or more."""
    if len(values) < 2:
        return statistics.fmean(values), None
    return statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))


def gain(method: Method, base: Method, column: str) -> tuple[float, float | None] | None:
    """Mean difference and its standard error: seed by seed where both have the same seeds."""
    a, b = method.accuracies(column), base.accuracies(column)
    if not a or not b:
        return None
    if a.keys() == b.keys():
        return mean_and_error([a[seed] - b[seed] for seed in a])
    (first, one), (second, other) = (mean_and_error(list(side.values())) for side in (a, b))
    known = one is not None and other is not None
    return first - second, math.hypot(one or 0.0, other or 0.0) if known else None


def over_seeds(measured: Measured, found: Sequence[Method]) -> Markup | None:
    """Means over the seeds, and each method against the first."""
    if not found:
        return None
    base = found[0]
    rows = [
        tag(
            "tr",
            tag("th", method.name, tag("small", count(len(method.rows), "seed")), scope="row"),
            [_cell(method.mean(column)) for column in measured.columns],
        )
        for method in found
    ]
    gains = [
        tag(
            "tr",
            tag("th", f"{method.name}, more than {base.name}", scope="row"),
            [_cell(gain(method, base, column), gained=True) for column in measured.columns],
            class_="gain",
        )
        for method in found[1:]
    ]
    head = head_row(measured.columns, bool(measured.too_good))
    body = tag("tbody", rows, gains)
    caption = tag("caption", "Mean accuracy in % over seeds, ± its standard error over the seeds")
    table = tag("table", caption, tag("thead", head), body, class_="numbers scores")
    return tag("div", table, class_="scroll")


def _cell(value: tuple[float, float | None] | None, gained: bool = False) -> Markup:
    if value is None:
        return tag("td", number(None))
    mean, error = value
    words = signed(mean) if gained else number(100 * mean, 1)
    return tag("td", words, None if error is None else tag("small", f"± {100 * error:.1f}"))
