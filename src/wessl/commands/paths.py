"""Paths that are not there, or hold nothing, said at once."""

import os
from pathlib import Path

from wessl.data.forms import ENDINGS, FORMS
from wessl.data.sources.file_urls import as_path
from wessl.errors import UserError

_PATTERN = frozenset("*?[{")


def refuse_missing_data(*given: str | None, **flags: str | None) -> None:
    """Stops at DATA that is a plain path and does not exist, or a folder without a picture.

    Anything else is opened later. Those that were given by a flag are told with it.
    """
    every = [*(("", data) for data in given), *((f"--{flag} ", flags[flag]) for flag in flags)]
    for said, data in every:
        path = as_path(data or "")
        if "://" in path or _PATTERN & set(path):
            continue
        if not Path(path).expanduser().exists():
            csv = Path(path).suffix.lower() in (".csv", ".tsv")
            raise UserError(f"{said}{data} does not exist" + f"; give {FORMS}" * (not csv))
        if data and os.path.isdir(there := os.path.expanduser(path)) and is_empty(there):
            raise UserError(
                f"{said}{data} holds no pictures ({' '.join(ENDINGS)}) at any depth and no .tar "
                "shards"
            )


def is_empty(folder: str) -> bool:
    """Whether there is neither a picture at any depth nor a shard; looks no further than one."""
    below, seen = [folder], set[tuple[int, int]]()
    try:
        while below:
            here = below.pop()
            info = os.stat(here)
            if (info.st_dev, info.st_ino) in seen:  # links may lead back to it
                continue
            seen.add((info.st_dev, info.st_ino))
            endings = (*ENDINGS, ".tar") if here == folder else ENDINGS
            with os.scandir(here) as entries:
                shown = [entry for entry in entries if not entry.name.startswith(".")]
            below += [entry.path for entry in shown if entry.is_dir()]
            if any(e.name.lower().endswith(endings) and not e.is_dir() for e in shown):
                return False
    except OSError:  # whoever opens it says why it cannot be read
        return False
    return True


def refuse_missing_weights(*given: str, flag: str = "") -> None:
    for path in given:
        if not Path(path).expanduser().exists():
            named = f"{flag} {path}".strip()
            raise UserError(f"{named} does not exist; give a run folder or a weights file")
