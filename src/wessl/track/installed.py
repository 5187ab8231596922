"""Which trackers there are, and whether their packages are here; nothing heavy is imported."""

import importlib.util
from collections.abc import Sequence

from wessl.errors import UserError, pip_install

NAMES = ("tensorboard", "wandb", "trackio")
ALSO = {
    "trackio": " (without constraints.txt: it wants pillow<13, and pip puts that in place of a "
    "newer one; wessl works with either)"
}
"""What else the installation of a package does."""


def refuse_missing(names: Sequence[str]) -> None:
    """Before a run begins: every tracker asked for is installed."""
    for name in names:
        if name not in NAMES:
            raise UserError(f"--track {name}: choose of {', '.join(NAMES)}")
        if importlib.util.find_spec(name) is None:
            how = pip_install(name) + ALSO.get(name, "")
            raise UserError(f"--track {name} needs a package that is not here: {how}")
