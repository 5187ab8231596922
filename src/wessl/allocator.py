"""What a large tensor leaves is there for the next one, on a CPU where the C library is GNU's.

Else it goes back to the system, which zeroes it page by page before it gives it again: up to a
fifth of the time that features take, or a small training's steps.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

TRIM, MAPPINGS, LARGE = -1, -4, -3
"""glibc's M_TRIM_THRESHOLD, M_MMAP_MAX and M_MMAP_THRESHOLD."""
KEEP = {MAPPINGS: 0, TRIM: -1}
"""Nothing apart, and nothing back."""
USUAL = {MAPPINGS: 65_536, LARGE: 32 * 2**20, TRIM: 64 * 2**20}
"""What glibc comes to by itself once it has seen large blocks; once told, it stops learning."""

_lock = Lock()
_wanted_by = 0
"""Commands and blocks, one within another or in several threads: the last to end gives back."""


def keep_memory() -> None:
    """Until the process ends, as suits a command."""
    _begin()


@contextmanager
def memory_kept(on: bool = True) -> Iterator[None]:
    """Until the end of the block, as suits a call in somebody's own process."""
    if not on:
        yield
        return
    _begin()
    try:
        yield
    finally:
        _end()


def _begin() -> None:
    global _wanted_by
    with _lock:
        _wanted_by += 1
        if _wanted_by == 1:
            _set(KEEP)


def _end() -> None:
    global _wanted_by
    with _lock:
        _wanted_by -= 1
        if _wanted_by == 0 and (library := _set(USUAL)) is not None:
            library.malloc_trim(0)


def _set(limits: dict[int, int]) -> Any:
    if sys.platform != "linux" or _set_by_the_user():
        return None
    library: Any = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):  # another C library than GNU's
        return None
    for which, limit in limits.items():
        library.mallopt(which, limit)
    return library


def _set_by_the_user() -> bool:
    """By the environment: then all of it stays as it is."""
    own = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_MMAP_THRESHOLD_")
    return any(name in os.environ for name in own) or "glibc.malloc" in os.environ.get(
        "GLIBC_TUNABLES", ""
    )
