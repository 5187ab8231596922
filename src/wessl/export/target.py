"""Where an export goes: a folder that appears whole, or not at all."""

import contextlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from safetensors import SafetensorError

from wessl.errors import Failure, UserError
from wessl.export.choices import Format

T = TypeVar("T")
WRITTEN = ".wessl-export.json"
"""Names of the files an export wrote; a folder with any other is never replaced."""


def find_target(home: Path, to: Format, out: str | Path | None, normalise: bool) -> Path:
    """The folder to write: by default one of its own in the run's, ``home``."""
    if normalise and to != "onnx":
        raise UserError(f"--normalise is for --to onnx; {to} normalises outside its model")
    if out is None and not home.is_dir() and home.exists():
        raise UserError(
            f"-o is needed: {home} is a file of weights, not a run folder to write into"
        )
    return home / "export" / to if out is None else Path(out)


def check_target(folder: Path, overwrite: bool) -> None:
    """Before any work: whether the folder may be written."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise UserError(f"-o {folder} is no folder; name a folder to write, which need not exist")
    if not folder.exists():
        return
    ours = _written(folder)
    strange = sorted(p.name for p in folder.iterdir() if p.name not in ours)
    if strange:
        raise UserError(
            f"-o {folder} holds {strange[0]}, which no export wrote; name a folder of its own"
        )
    if not overwrite and any(folder.iterdir()):
        raise UserError(f"-o {folder} exists; name another folder, or replace it with --overwrite")


def _written(folder: Path) -> list[str]:
    try:
        names: list[str] = json.loads((folder / WRITTEN).read_text())["files"]
    except (OSError, ValueError, KeyError, TypeError):  # none, or another's file of that name
        return []
    return [*names, WRITTEN]


def write_folder(folder: Path, write: Callable[[Path], T]) -> T:
    """Calls ``write`` on a temporary folder beside and moves it into place when it is on disk."""
    new, old = (folder.parent / f".{folder.name}.{os.getpid()}.{kind}" for kind in ("tmp", "old"))
    missing = [parent for parent in folder.parents if not parent.exists()]
    try:
        new.mkdir(parents=True)
        told = write(new)
        names = sorted(path.name for path in new.iterdir())
        (new / WRITTEN).write_text(json.dumps(dict(format=1, files=names)) + "\n")
        for path in new.iterdir():
            with path.open("rb+") as file:
                os.fsync(file.fileno())
        _replace(new, folder, old)
    except (OSError, SafetensorError) as error:  # a full disk has two names here
        reason = getattr(error, "strerror", None) or error
        raise Failure(f"-o {folder}: cannot be written ({reason})") from error
    finally:
        shutil.rmtree(new, ignore_errors=True)
        for parent in () if folder.exists() else missing:
            with contextlib.suppress(OSError):
                parent.rmdir()
    shutil.rmtree(old, ignore_errors=True)
    return told


def _replace(new: Path, folder: Path, old: Path) -> None:
    if not folder.exists():
        new.rename(folder)
        return
    folder.rename(old)
    try:
        new.rename(folder)
    except BaseException:
        old.rename(folder)
        raise
