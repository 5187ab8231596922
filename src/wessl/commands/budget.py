"""``--budget``: how long a run may take."""

from wessl.errors import UserError


def seconds(budget: str | float | None) -> float | None:
    """``"90s"``, ``"20m"``, ``"2h"`` or a number of seconds.

    >>> seconds("20m")
    1200.0
    """
    if budget is None or isinstance(budget, (int, float)):
        return budget
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    try:
        value = float(budget[:-1]) * units[budget[-1]]
    except (ValueError, KeyError, IndexError):
        raise UserError(f"--budget {budget!r} is not a time; write 90s, 20m or 2h") from None
    if not value > 0:
        raise UserError(f"--budget {budget!r} must be more than nothing")
    return value
