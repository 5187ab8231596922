"""One process at a time builds what others would only build again."""

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from wessl.errors import UserError


@contextmanager
def sole_builder(home: Path, there: Callable[[], bool] = lambda: False) -> Iterator[bool]:
    """Hold a lock that dies with its process, and clear away what a killed builder left.

    False, without the lock, as soon as `there` says that another process has done the work: it
    may keep the lock for longer.
    """
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"the cache {home.parent} cannot be made ({error}): set WESSL_CACHE"
        ) from error
    try:
        import fcntl
    except ImportError:  # Windows: two processes may both decode, and the last rename wins
        yield True
        return
    path = home.with_name(home.name + ".lock")
    while True:
        try:
            lock = os.open(path, os.O_CREAT | os.O_RDWR)
        except OSError as error:
            raise UserError(
                f"cannot write in the cache {home.parent} ({error}): set WESSL_CACHE"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if path.exists() and os.path.samestat(os.fstat(lock), os.stat(path)):
                break
            os.close(lock)  # its last holder removed the file: lock the new one
        except BlockingIOError:
            os.close(lock)
            if there():
                yield False
                return
            time.sleep(0.1)
    try:
        for left in home.parent.glob(home.name + ".part-*"):
            shutil.rmtree(left)
        yield True
    finally:
        path.unlink(missing_ok=True)  # with its folder, if somebody removed that
        os.close(lock)
