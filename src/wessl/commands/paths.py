"""Paths that are not there, said at once."""

from pathlib import Path

from wessl.errors import UserError

_PATTERN = frozenset("*?[{")


def refuse_missing_data(*given: str | None) -> None:
    """Stops at DATA that is a plain path and does not exist; anything else is opened later."""
    for data in given:
        if data is None or "://" in data or _PATTERN & set(data):
            continue
        if not Path(data).expanduser().exists():
            from wessl.data.sources import open_source

            open_source(data)  # says what it could be instead


def refuse_missing_weights(*given: str) -> None:
    for path in given:
        if not Path(path).expanduser().exists():
            raise UserError(f"{path} does not exist; give a run folder or a weights file")
