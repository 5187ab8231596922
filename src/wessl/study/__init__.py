"""The paper's tables and figures as named grids over recipes and seeds, resumable.

Called, this room is the verb: ``wessl.study("where-how", "builtin://digits")``; see
``wessl.verbs.study``. ``run_study`` is the same without the command line's packages.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wessl.study.run import run_study

__all__ = ["run_study"]


def __getattr__(name: str) -> Any:
    if name != "run_study":
        raise AttributeError(f"module 'wessl.study' has no attribute {name!r}")
    from wessl.study.run import run_study

    return run_study
