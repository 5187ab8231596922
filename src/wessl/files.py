"""Whole files or none: written beside their name, and moved there when they are on disk."""

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError

FULL = (errno.ENOSPC, errno.EDQUOT)
"""How a system says that a disk, or one's share of it, is full."""


def write_whole(path: Path, write: Callable[[Path], Any]) -> None:
    """Calls ``write`` on a temporary name and moves the file into place only when it is on disk.

    Its permissions are those of the file it replaces, or of any new one: some writers, safetensors'
    among them, make files for their owner alone.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.touch()
        mode = (path if path.exists() else temporary).stat().st_mode & 0o777
        write(temporary)
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        if temporary.stat().st_mode & 0o777 != mode:
            with contextlib.suppress(PermissionError):  # some file systems have one mode for all
                temporary.chmod(mode)
        temporary.replace(path)
    except (OSError, RuntimeError, SafetensorError) as error:  # a full disk has three names here
        # What torch says of a full disk hides the system's own words behind its archive's.
        reason = error.__context__ if isinstance(error.__context__, OSError) else error
        failure = OSError(f"could not write {path}: {reason}")
        failure.errno = getattr(reason, "errno", None)
        raise failure from error
    finally:
        temporary.unlink(missing_ok=True)


def write_tensors(path: Path, state: dict[str, Any]) -> None:
    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            torch.save(state, file)

    write_whole(path, write)


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=2) + "\n"
    write_whole(path, lambda temporary: temporary.write_text(text))


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sha256_of(value: Any) -> str:
    """64 digits of a plain value, by its JSON; the order of a dictionary's keys does not count."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def try_lock(file: IO[str], shared: bool = False) -> bool:
    """Whether this process has the file's lock now, which dies with it, however that ends.

    Where the system knows no such locks two processes on one folder are not noticed.
    """
    try:
        import fcntl
    except ImportError:  # not a Unix
        return True
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
