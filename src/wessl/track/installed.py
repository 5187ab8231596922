"""Which trackers there are, and whether their packages are here; nothing heavy is imported."""

import importlib.util
from collections.abc import Sequence

from wessl.errors import UserError, pip_install

NAMES = ("tensorboard", "wandb", "trackio")


def refuse_missing(names: Sequence[str]) -> None:
    """Before a run begins: every tracker asked for is installed."""
    for name in names:
        if name not in NAMES:
            raise UserError(f"--track {name}: choose of {', '.join(NAMES)}")
        if importlib.util.find_spec(name) is None:
            raise UserError(f"--track {name} needs a package that is not here: {pip_install(name)}")
