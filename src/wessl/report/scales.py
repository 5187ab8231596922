"""From numbers to a drawing's scale: round limits, and few enough points."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wessl.report.markup import number

MOST_POINTS = 240
Point = tuple[float, float | None]
"""Where along, and how high; None where there is no number."""


@dataclass(frozen=True)
class Axis:
    """From where to where, with round numbers to write beside it."""

    low: float
    high: float
    ticks: list[float]
    digits: int


def thin(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """Few enough points to draw: of each stretch the lowest and the highest, so no spike is lost.

    A stretch with points that have no number keeps the first of them, so that the gap shows.
    """
    if len(points) <= most:
        return list(points)
    kept = {0, len(points) - 1}
    for stretch in np.array_split(np.arange(len(points)), (most - 2) // 3):
        heights = {int(i): points[i][1] for i in stretch}
        known = {i: height for i, height in heights.items() if height is not None}
        if known:
            kept |= {min(known, key=known.__getitem__), max(known, key=known.__getitem__)}
        kept.update([i for i in heights if i not in known][:1])
    return [points[i] for i in sorted(kept)]


def axis(values: Sequence[float], ticks: int, steps: Sequence[float] = (1, 2, 2.5, 5, 10)) -> Axis:
    """Round limits around the values, with about so many ticks."""
    low, high = min(values), max(values)
    largest = max(abs(low), abs(high))
    if high - low <= max(1e-9 * largest, 1e-30):
        spare = 0.5 * largest if largest > 1e-30 else 0.5
        low, high = low - spare, high + spare
    rough = (high - low) / ticks
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * k for k in steps if unit * k >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    digits += round(step * 10**digits, 6) != round(step * 10**digits)  # a step of 0.25 needs two
    marks = [i * step for i in range(first, last + 1)]
    return Axis(marks[0], marks[-1], marks, digits)


def axis_to_the_end(values: Sequence[float]) -> Axis:
    """From 0 to where the data ends: a line should reach the frame."""
    rounded = axis([0.0, *values], 5, (1, 2, 5, 10))
    high = max(values) if max(values) > 0 else rounded.high
    ticks = [t for t in rounded.ticks if t <= high * (1 + 1e-9)]
    return Axis(rounded.low, high, ticks, rounded.digits)


def tick(value: float, digits: int) -> str:
    """A number beside an axis; very large and very small ones by their powers of ten."""
    return f"{value:.3g}" if abs(value) >= 1e6 or digits > 6 else number(value, digits)


def digits_for(extent: float) -> int:
    """Decimals that tell a thousandth of the axis apart."""
    return max(0, 3 - math.floor(math.log10(extent) + 1e-9)) if extent > 0 else 3
