"""The life of worker processes: numbers of pictures in, decoded pictures into shared memory."""

import gc
import mmap
import os
import pickle
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import NamedTuple, Protocol

import numpy as np

from wessl.data.decoding.bad_pictures import BadPicture
from wessl.data.decoding.decode import Pixels, shrink
from wessl.data.workers.shared import shared

Answer = tuple[int, ...] | Pixels | BadPicture
"""The shape of a picture in shared memory, one that found no room there, or why there is none."""
Asked = tuple[int, list[int]]
"""A slot of the shared memory, and the numbers of the pictures that shall go there."""


class Place(NamedTuple):
    """The descriptors that a worker is given: two pipes, and memory."""

    asked: int
    answers: int
    memory: int


class Readable(Protocol):
    """The part of a source that decoding needs."""

    parallel: bool
    ahead: int

    def __len__(self) -> int: ...
    def read(self, index: int, short_side: int | None = None) -> Pixels: ...
    def size(self, index: int) -> tuple[int, int]: ...
    def prefetch(self, indices: Sequence[int]) -> None: ...


def attempt(source: Readable, index: int, short_side: int | None) -> Pixels | BadPicture:
    """Read a picture, or return why it cannot be read."""
    try:
        return source.read(index, short_side)
    except BadPicture as bad:
        # A new one, without the traceback, which would keep the file's bytes alive.
        return type(bad)(str(bad))


def split(source_file: int, slot_size: int, shrinks: bool, places: list[Place]) -> None:
    """Become a worker for each of `places`, sharing what is loaded before.

    Torch takes as long to load as five hundred pictures to decode, and sixteen processes that load
    it side by side wait for each other.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.dup2(2, 1)  # a library that prints does it where it is seen
    told = sys.stdin.buffer.read()
    if shrinks:
        gc.disable()
        shrink(np.zeros((2, 2, 1), np.uint8), 1)
        gc.freeze()  # to look at it for garbage later would be to copy it for each worker
        gc.enable()
    if len(places) == 1:
        work(source_file, told, slot_size, places[0])
        return
    crew = {_fork(source_file, told, slot_size, place, places) for place in places}
    _close(places)
    ended, status = os.wait()
    for other in crew - {ended}:  # without one of them the parent would wait for ever
        os.kill(other, signal.SIGKILL)
        os.waitpid(other, 0)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)  # without the half second that unloading takes


def _fork(source_file: int, told: bytes, slot_size: int, place: Place, places: list[Place]) -> int:
    if worker := os.fork():
        return worker
    try:
        # Else the end of one worker would not be the end of its pipe.
        _close(other for other in places if other != place)
        work(source_file, told, slot_size, place)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _close(places: Iterable[Place]) -> None:
    for place in places:
        for descriptor in place:
            os.close(descriptor)


def work(source_file: int, told: bytes, slot_size: int, place: Place) -> None:
    """The life of one worker: chunks of numbers in, pictures into shared memory."""
    source, short_side = shared(source_file, told)
    memory = np.frombuffer(mmap.mmap(place.memory, 0), np.uint8)
    results = Connection(place.answers, readable=False)
    asked: queue.SimpleQueue[Asked] = queue.SimpleQueue()
    ready: queue.SimpleQueue[Asked] = queue.SimpleQueue()
    for run, args in ((_listen, (place.asked, asked)), (_fetch, (source, asked, ready))):
        threading.Thread(target=run, args=args, daemon=True).start()
    while True:
        slot, chunk = ready.get()
        room = memory[slot * slot_size : (slot + 1) * slot_size]
        answers = _into(room, [attempt(source, index, short_side) for index in chunk])
        try:
            results.send_bytes(pickle.dumps(answers, protocol=5))
        except BrokenPipeError:
            return


def _into(room: Pixels, pictures: list[Pixels | BadPicture]) -> list[Answer]:
    answers: list[Answer] = []
    start = 0
    for picture in pictures:
        if isinstance(picture, BadPicture) or start + picture.nbytes > len(room):
            answers.append(picture)
        else:
            room[start : start + picture.nbytes].reshape(picture.shape)[...] = picture
            answers.append(picture.shape)
            start += picture.nbytes
    return answers


def _listen(pipe: int, asked: "queue.SimpleQueue[Asked]") -> None:
    """Alone in its thread, so that the parent's end is seen whatever the others wait for."""
    messages = Connection(pipe, writable=False)
    while True:
        try:
            asked.put(pickle.loads(messages.recv_bytes()))
        except (EOFError, OSError):  # the second if it died while it wrote
            os._exit(0)


def _fetch(
    source: Readable, asked: "queue.SimpleQueue[Asked]", ready: "queue.SimpleQueue[Asked]"
) -> None:
    """While one chunk is decoded, the bytes of the next ones come."""
    while True:
        slot, chunk = asked.get()
        with suppress(Exception):  # a hint: reading them finds the same error, and tells it
            source.prefetch(chunk)
        ready.put((slot, chunk))
