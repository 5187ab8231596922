"""Which runs repeat one another: the same settings from another seed."""

import itertools
import json
from collections.abc import Sequence

from wessl.report.markup import finite
from wessl.report.story import Story


def seed_of(story: Story) -> int:
    return int(finite(story.config.get("seed")) or 0)


def groups(stories: Sequence[Story]) -> list[int]:
    """The number of each run's method: runs that differ in their seed alone have one number.

    Where nothing is repeated, or a seed itself is, every run counts for itself.
    """
    settings = [json.dumps(story.config | {"seed": None}, sort_keys=True) for story in stories]
    numbers = {one: i for i, one in enumerate(dict.fromkeys(settings))}
    found = [numbers[one] for one in settings]
    drawn = [(number, seed_of(story)) for number, story in zip(found, stories, strict=True)]
    distinct = len(set(drawn)) == len(drawn)
    return found if distinct else list(range(len(stories)))


def method_names(stories: Sequence[Story]) -> dict[int, str]:
    """A name for each method, from the names of its runs."""
    found = groups(stories)
    return {
        number: common_name([s.name for s, g in zip(stories, found, strict=True) if g == number])
        for number in dict.fromkeys(found)
    }


def common_name(names: Sequence[str]) -> str:
    """
    >>> common_name(["ent-seed0", "ent-seed1"]), common_name(["ent"]), common_name(["a", "b"])
    ('ent', 'ent', 'a, b')
    """
    if len(names) == 1:
        return names[0]
    alike = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False))
    shared = "".join(letters[0] for letters in alike).rstrip("0123456789")
    return shared.rstrip("-_/ .").removesuffix("seed").rstrip("-_/ .=") or ", ".join(names)
