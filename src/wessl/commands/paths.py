"""Paths that are not there, said at once."""

from pathlib import Path

from wessl.data.forms import FORMS
from wessl.errors import UserError

_PATTERN = frozenset("*?[{")


def refuse_missing_data(*given: str | None, **flags: str | None) -> None:
    """Stops at DATA that is a plain path and does not exist; anything else is opened later.

    Those that were given by a flag are told with it.
    """
    every = [*(("", data) for data in given), *((f"--{flag} ", flags[flag]) for flag in flags)]
    for said, data in every:
        if data is None or "://" in data or _PATTERN & set(data):
            continue
        if not Path(data).expanduser().exists():
            csv = Path(data).suffix.lower() in (".csv", ".tsv")
            raise UserError(f"{said}{data} does not exist" + f"; give {FORMS}" * (not csv))


def refuse_missing_weights(*given: str) -> None:
    for path in given:
        if not Path(path).expanduser().exists():
            raise UserError(f"{path} does not exist; give a run folder or a weights file")
