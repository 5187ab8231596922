"""Test pictures that an encoder learnt from, without labels: some allow it, all should know."""

from pathlib import Path, PurePosixPath
from typing import Any

from wessl.run import Run


def said_of_pretraining(path: str, name: str, test: str) -> str | None:
    """A note if the run at ``path`` learnt from the test pictures, as far as places tell.

    Copies elsewhere are not known again, nor is anything of a weights file without its run.
    """
    run = Run(path)
    if not run.exists:
        return None
    header: dict[str, Any] = run.read_config()
    learnt = str(header["data"]["location"])
    if within(test, learnt):
        share = "the test pictures are"
    elif within(learnt, test):
        share = "some of the test pictures are"
    else:
        return None
    return (
        f"note: {share} among those that {name} learnt from ({learnt}), without their labels; for "
        "a test on unseen pictures, pretrain without them"
    )


def within(inner: str, outer: str) -> bool:
    """Whether one place is another, or lies in it.

    >>> within("photos/test", "photos"), within("photos2", "photos"), within("a.npz", "a.npz")
    (True, False, True)
    >>> within("builtin://digits/test", "builtin://digits")
    True
    """
    first, second = _parts(inner), _parts(outer)
    return first[: len(second)] == second


def _parts(place: str) -> tuple[str, ...]:
    if "://" in place:
        return PurePosixPath(place.rstrip("/")).parts
    return Path(place).expanduser().resolve().parts
