"""A run's page brought up to date by whatever has added to the run."""

from collections.abc import Callable
from pathlib import Path

from wessl.verbs.report import report

Say = Callable[[str], None]


def write_page(run: Path, say: Say) -> Path | None:
    """A result is not lost to a page that cannot be drawn: what goes wrong is said and no more."""
    try:
        return report(run)
    except Exception as error:
        say(f"the report is not written: {error}. Try: wessl report {run}")
        return None
