"""What a large tensor leaves is there for the next one, on a CPU where the C library is GNU's.

Else it goes back to the system, which zeroes it page by page before it gives it again: up to a
fifth of the time that features take, or a small training's steps.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

TRIM, MAPPINGS, LARGE = -1, -4, -3
"""glibc's M_TRIM_THRESHOLD, M_MMAP_MAX and M_MMAP_THRESHOLD."""
KEEP = {MAPPINGS: 0, TRIM: 2**31 - 1}
USUAL = {MAPPINGS: 65_536, LARGE: 32 * 2**20, TRIM: 64 * 2**20}
"""What glibc comes to by itself once it has seen large blocks; once told, it stops learning."""

_for_good = False


def keep_memory() -> None:
    """Until the process ends, as suits a command."""
    global _for_good
    _for_good = True
    _set(KEEP)


@contextmanager
def memory_kept(on: bool = True) -> Iterator[None]:
    """Until the end of the block, as suits a call in somebody's own process."""
    if _for_good or not on:
        yield
        return
    _set(KEEP)
    try:
        yield
    finally:
        if (library := _set(USUAL)) is not None:
            library.malloc_trim(0)


def _set(limits: dict[int, int]) -> Any:
    if sys.platform != "linux":
        return None
    library: Any = ctypes.CDLL(None)
    if not hasattr(library, "mallopt"):  # another C library than GNU's
        return None
    for which, limit in limits.items():
        library.mallopt(which, limit)
    return library
