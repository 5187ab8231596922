"""`RUN/features`, where features and results are kept."""

import contextlib
import time
from pathlib import Path

from torch.distributed import ProcessGroup

from wessl.evaluate.features.passes import place_in

_DAY = 86_400


def open_home(folder: Path | None, group: ProcessGroup | None) -> Path | None:
    """Where a run folder keeps them; what killed writers left there is cleared by the first process
    of a group.

    Only after a day, as another command may be writing.
    """
    if folder is None:
        return None
    home = Path(folder) / "features"
    if place_in(group)[0] == 0:
        for left in home.glob(".*.safetensors.*.tmp"):
            with contextlib.suppress(OSError):  # gone already, or not ours to clear
                if time.time() - left.stat().st_mtime > _DAY:
                    left.unlink()
    return home
