"""How sure a number is, written beneath it."""

from wessl.report.markup import Markup, finite, number, tag
from wessl.report.story import State


def ends_of(result: State) -> tuple[float, float] | None:
    ends = result.get("interval")
    if not isinstance(ends, list) or len(ends) != 2:
        return None
    low, high = (finite(end) for end in ends)
    return None if low is None or high is None else (low, high)


def interval(result: State) -> Markup | None:
    """The interval as it was measured; without one, the standard error."""
    ends, error = ends_of(result), finite(result.get("standard_error"))
    if ends:
        return tag("small", "\N{EN DASH}".join(number(100 * end, 1) for end in ends))
    return None if error is None else tag("small", f"± {number(100 * error, 1)} standard error")
