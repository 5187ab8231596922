"""k-NN while training, and whether it changed by more than chance."""

import math
from typing import NamedTuple

from wessl.report.markup import finite, percent
from wessl.report.story import Story
from wessl.report.words import count


class Probed(NamedTuple):
    """One probe of an encoder."""

    epoch: float
    accuracy: float
    pictures: int | None
    """It was asked about; None where a run did not record it."""


def knn_points(story: Story) -> list[Probed]:
    found = []
    for row in story.probes:
        epoch, accuracy = finite(row.get("epoch")), finite(row["probe"].get("knn"))
        pictures = finite(row["probe"].get("pictures"))
        if epoch is not None and accuracy is not None:
            found.append(Probed(epoch, accuracy, int(pictures) if pictures else None))
    return found


def knn_words(story: Story) -> str:
    known = knn_points(story)
    if not known:
        return ""
    last = known[-1]
    # A run may have gone on with other pictures to probe with.
    first = next(one for one in known if one.pictures in (None, last.pictures))
    of = of_pictures(last)
    if first is last:
        return f"k-NN accuracy{of} is {after(last)}."
    if abs(last.accuracy - first.accuracy) < 0.002:
        span = f"from {first.epoch:.3g} to {last.epoch:.3g} epochs"
        return f"k-NN accuracy{of} stayed at {percent(last.accuracy)}, {span}."
    if by_chance(first, last):
        went = f"from {after(first)} to {after(last)}"
        return f"k-NN accuracy{of} went {went}, which may be chance."
    verb = "rose" if last.accuracy > first.accuracy else "fell"
    return f"k-NN accuracy{of} {verb} from {after(first)} to {after(last)}."


def after(one: Probed) -> str:
    return f"{percent(one.accuracy)} after {one.epoch:.3g} epoch{'s' * (one.epoch != 1)}"


def of_pictures(one: Probed) -> str:
    return "" if one.pictures is None else f" of {count(one.pictures, 'picture')}"


def by_chance(one: Probed, other: Probed) -> bool:
    """Whether they differ by less than two standard errors; unknown pictures say nothing.

    >>> by_chance(Probed(1, 22 / 48, 48), Probed(18, 25 / 48, 48))
    True
    >>> by_chance(Probed(1, 0.458, 2000), Probed(18, 0.521, 2000))
    False
    """
    pictures = one.pictures or other.pictures, other.pictures or one.pictures
    if pictures[0] is None or pictures[1] is None:
        return False
    # Of both together, or a single picture that is first wrong and then right would be certain.
    right = one.accuracy * pictures[0] + other.accuracy * pictures[1]
    share = min(1.0, max(0.0, right / sum(filter(None, pictures))))
    error = math.sqrt(share * (1 - share) * (1 / pictures[0] + 1 / pictures[1]))
    return abs(one.accuracy - other.accuracy) <= 2 * error
