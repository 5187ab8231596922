"""A worker that cannot be had leaves nothing open."""

import gc
import os
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from wessl.data.workers.crew import Worker

NEEDED = 6
"""Descriptors: the memory, its mapping, and two pipes."""


def opened() -> set[str]:
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@contextmanager
def room_for(count: int) -> Iterator[None]:
    """This process may open so many more descriptors."""
    free = [os.dup(0) for _ in range(count + 1)]
    for descriptor in free:
        os.close(descriptor)
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1], most))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


def fails() -> bool:
    try:
        worker = Worker(slot_size=100, slots=2)
    except OSError:
        return True
    for descriptor in worker.place:
        os.close(descriptor)
    return False


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("count", range(NEEDED + 1))
def test_a_worker_that_finds_too_few_descriptors_closes_those_it_had(count):
    gc.disable()  # what is left must not hang in a circle that only the collector sees
    try:
        before = opened()
        with room_for(count):
            failed = fails()
        left = opened() - before
    finally:
        gc.enable()
    assert failed == (count < NEEDED)
    assert not left
