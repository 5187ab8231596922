"""Memory that processes share: nameless, so that it goes with the last of them, however it ends."""

import mmap
import os
import pickle
import tempfile
from typing import Any


def shared_file(size: int) -> int:
    """The descriptor of a new piece of memory; pages that nobody wrote to take no room."""
    size = max(1, size)
    try:
        descriptor = os.memfd_create("wessl")
    except (AttributeError, OSError):  # not Linux, or a sandbox without it
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def share(value: Any) -> tuple[int, bytes]:
    """Pickle `value`, its arrays apart in shared memory: a descriptor, and what `shared` takes.

    A million names then lie in memory once, and not once in every process.
    """
    buffers: list[pickle.PickleBuffer] = []
    body = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    parts = [buffer.raw() for buffer in buffers]
    # Each starts at a multiple of 64, where arrays of every type may lie.
    rooms = [-(-part.nbytes // 64) * 64 for part in parts]
    descriptor = shared_file(sum(rooms))
    bounds, start = [], 0
    with mmap.mmap(descriptor, max(1, sum(rooms))) as memory:
        for part, room in zip(parts, rooms, strict=True):
            memory[start : start + part.nbytes] = part
            bounds.append((start, start + part.nbytes))
            start += room
    return descriptor, pickle.dumps((body, bounds))


def shared(descriptor: int, told: bytes) -> Any:
    """The value that `share` was given, its arrays read-only and in the shared memory."""
    body, bounds = pickle.loads(told)
    memory = memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
    return pickle.loads(body, buffers=[memory[start:stop] for start, stop in bounds])
