"""A picture cache is used before the disk has it, and still never taken for whole when it is not.

What was written is in memory, where every process of this machine sees it, whoever is killed. Only
a machine that goes down can lose it, and then it comes back with another boot id. So a cache that
may not be on the disk yet holds a file `unsynced` with the boot id under which it was written, and
under any other it does not count. This file is on the disk before the first pixel, and is removed
after the last one is.
"""

import errno
import os
import threading
import warnings
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from wessl.errors import UserError

MARK = "unsynced"
_THREAD = "wessl-cache-sync"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def mark(part: Path) -> bool:
    """Mark a new folder before anything else is in it; False where no boot id is to be had."""
    boot = _boot()
    if boot is None:
        return False
    (part / MARK).write_text(boot)
    _sync_file(part / MARK)
    _sync_file(part)
    return True


def is_marked(home: Path) -> bool:
    return (home / MARK).exists()


def is_safe(home: Path) -> bool:
    """Whether all that was written is still there: on the disk, or in memory since."""
    try:
        return (home / MARK).read_text() == _boot()
    except FileNotFoundError:
        return True


def sync(folder: Path) -> None:
    """Wait until the disk has every file of the folder, then take the mark away."""
    for path in folder.iterdir():
        with suppress(FileNotFoundError):  # a digest's temporary name, which is gone already
            _sync_file(path)
    _sync_file(folder)
    (folder / MARK).unlink(missing_ok=True)


def sync_behind(home: Path, lock: AbstractContextManager[object]) -> None:
    """Do so in a thread that enters `lock`, unless that gives it False; an exit waits for it."""

    def run() -> None:
        # Without the right to write there, the mark stays, and the cache serves until a reboot.
        with suppress(UserError), lock as alone:
            if alone and is_marked(home):
                _sync_or_spoil(home)

    threading.Thread(target=run, name=_THREAD).start()


def wait_for_disk() -> None:
    """Until nothing is left to `sync_behind`, as every process does before it exits."""
    for thread in threading.enumerate():
        if thread.name == _THREAD:
            thread.join()


def _sync_or_spoil(home: Path) -> None:
    try:
        sync(home)
    except (FileNotFoundError, PermissionError):  # removed meanwhile, or not ours: the mark stays
        return
    except OSError as error:
        with suppress(OSError):
            (home / "header.json").unlink()
        warnings.warn(
            f"the picture cache {home} did not get to the disk ({error}); it serves this run, and "
            "the next one decodes again",
            stacklevel=1,
        )


def _boot() -> str | None:
    try:
        return _BOOT.read_text().strip() or None
    except OSError:  # not Linux
        return None


def _sync_file(path: Path) -> None:
    if os.name == "nt" and path.is_dir():  # which opens no folders
        return
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems write folders by themselves, and say that they cannot be asked to.
        if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)
