"""Where features and tables are to be written: what can be refused before any work."""

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from wessl.errors import UserError, pip_install

ENDINGS = (".npz", ".npy", ".parquet")


def check_out(out: Path, endings: Sequence[str] = ENDINGS, overwrite: bool = False) -> None:
    """Hours of work must not end at a file that cannot be written, or replace what is wanted."""
    if out.suffix.lower() not in endings:
        raise UserError(f"-o {out}: its name must end in {' or '.join(endings)}")
    if out.is_dir():
        raise UserError(
            f"-o {out} is a folder; name a file to write, such as {out}/out{endings[0]}"
        )
    if out.exists() and not overwrite:
        raise UserError(f"-o {out} exists; name another file, or replace it with --overwrite")
    if not out.absolute().parent.is_dir():
        raise UserError(f"-o {out}: the folder {out.parent} does not exist; make it first")
    if not os.access(out.absolute().parent, os.W_OK | os.X_OK):
        raise UserError(f"-o {out}: you may not write in {out.parent}")
    if out.suffix.lower() == ".parquet":
        import_arrow()


def import_arrow() -> tuple[Any, Any]:
    """pyarrow, which only this format needs."""
    try:
        return importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise UserError(
            f"-o: a .parquet file needs pyarrow ({error}); write an .npz, or "
            + pip_install("'wessl[parquet]'")
        ) from error
