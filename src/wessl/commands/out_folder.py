"""Whether a run may have the folder of ``--out``."""

import fnmatch
import json
import os
from pathlib import Path

from wessl.errors import UserError


def refuse_out(out: Path) -> None:
    refuse_unwritable(out)
    refuse_foreign(out)


def refuse_unwritable(out: Path) -> None:
    """Hours of decoding must not end at a folder that cannot be made."""
    there = next(place for place in (out, *out.absolute().parents) if place.exists())
    if not there.is_dir():
        raise UserError(f"--out {out}: {there} is a file, not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UserError(f"--out {out}: you may not write in {there}")


LEFT_BY_US = {".lock", "checkpoints", "train.log", "tensorboard", "wandb", "trackio"}
"""All that a run may hold that was stopped before its config was written, trackers' folders too."""
HALF_WRITTEN = ".config.json.*.tmp"
"""The config while it is written, or where the process was killed then."""


def refuse_foreign(out: Path) -> None:
    """A run has its folder to itself: what others keep there is not ours to write over."""
    header = out / "config.json"
    there = {path.name for path in out.iterdir()} if out.is_dir() else set()
    if header.exists():
        if not _may_be_ours(header):
            raise UserError(f"--out {out}: its config.json is not a run's; give a new folder")
    elif strange := sorted(there - LEFT_BY_US - set(fnmatch.filter(there, HALF_WRITTEN))):
        held = ", ".join(strange[:3])
        raise UserError(f"--out {out} holds {held} and is no run of wessl; give a new folder")


def _may_be_ours(header: Path) -> bool:
    try:
        found = json.loads(header.read_text())
    except ValueError:  # damaged: whoever reads it says so
        return True
    return isinstance(found, dict) and "config" in found
