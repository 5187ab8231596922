"""The life of a worker process: numbers of pictures in, decoded pictures into shared memory."""

import mmap
import os
import pickle
import queue
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

import numpy as np

from wessl.data.bad_pictures import BadPicture
from wessl.data.decode import Pixels
from wessl.data.shared import shared

Answer = tuple[int, ...] | Pixels | BadPicture
"""The shape of a picture in shared memory, one that found no room there, or why there is none."""


class Readable(Protocol):
    """The part of a source that decoding needs."""

    parallel: bool
    ahead: int

    def __len__(self) -> int: ...
    def read(self, index: int, short_side: int | None = None) -> Pixels: ...
    def prefetch(self, indices: Sequence[int]) -> None: ...


def attempt(source: Readable, index: int, short_side: int | None) -> Pixels | BadPicture:
    """Read a picture, or return why it cannot be read."""
    try:
        return source.read(index, short_side)
    except BadPicture as bad:
        # A new one, without the traceback, which would keep the file's bytes alive.
        return type(bad)(str(bad))


def work(source_file: int, memory_file: int, slot_size: int) -> None:
    """The life of a worker process: chunks of indices in, pictures into shared memory."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints must not write into the answers
    source, short_side = shared(source_file, pickle.load(sys.stdin.buffer))
    memory = np.frombuffer(mmap.mmap(memory_file, 0), np.uint8)
    asked: queue.SimpleQueue[tuple[int, list[int]]] = queue.SimpleQueue()
    ready: queue.SimpleQueue[tuple[int, list[int]]] = queue.SimpleQueue()
    for run, args in ((_listen, (asked,)), (_fetch, (source, asked, ready))):
        threading.Thread(target=run, args=args, daemon=True).start()
    while True:
        slot, chunk = ready.get()
        place = memory[slot * slot_size : (slot + 1) * slot_size]
        answers = _into(place, [attempt(source, index, short_side) for index in chunk])
        try:
            pickle.dump(answers, results, protocol=5)
            results.flush()
        except BrokenPipeError:
            return


def _into(place: Pixels, pictures: list[Pixels | BadPicture]) -> list[Answer]:
    answers: list[Answer] = []
    start = 0
    for picture in pictures:
        if isinstance(picture, BadPicture) or start + picture.nbytes > len(place):
            answers.append(picture)
        else:
            place[start : start + picture.nbytes].reshape(picture.shape)[...] = picture
            answers.append(picture.shape)
            start += picture.nbytes
    return answers


def _listen(asked: "queue.SimpleQueue[Any]") -> None:
    """Alone in its thread, so that the parent's end is seen whatever the others wait for."""
    while True:
        try:
            asked.put(pickle.load(sys.stdin.buffer))
        except (EOFError, pickle.UnpicklingError):  # the second if it died while it wrote
            os._exit(0)


def _fetch(
    source: Readable, asked: "queue.SimpleQueue[Any]", ready: "queue.SimpleQueue[Any]"
) -> None:
    """While one chunk is decoded, the bytes of the next ones come."""
    while True:
        slot, chunk = asked.get()
        with suppress(Exception):  # a hint: reading them finds the same error, and tells it
            source.prefetch(chunk)
        ready.put((slot, chunk))
