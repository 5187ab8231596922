"""Many pictures decoded ahead of their reader, in worker processes.

A worker writes its pictures into memory that it shares with the parent; only their sizes go through
a pipe. Through the pipe the pictures themselves would be copied four times, in pieces of 64 kB.
"""

import mmap
import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from itertools import islice

import numpy as np

from wessl.data.bad_pictures import BadPicture
from wessl.data.decode import Pixels
from wessl.data.shared import share, shared_file
from wessl.data.worker_process import Answer, Readable, attempt
from wessl.devices import usable_cores
from wessl.errors import Lost

CHUNK = 8


def decode_many(
    source: Readable, indices: Iterable[int], short_side: int | None, workers: int | None = None
) -> Generator[tuple[int, Pixels | BadPicture], None, None]:
    """Decode in the given order, ahead of the reader; a picture that fails comes as its reason.

    `workers=0` decodes in this process; `None` does so for fewer than 512 pictures, else takes a
    process a core, at most 16. Each worker is at most `source.ahead` chunks of eight pictures
    ahead.
    """
    if workers is None or not source.parallel:
        workers = default_workers() if source.parallel and len(source) >= 512 else 0
    todo = iter(indices)
    if workers == 0:
        while chunk := list(islice(todo, CHUNK)):
            source.prefetch(chunk)
            yield from ((index, attempt(source, index, short_side)) for index in chunk)
        return
    crew: list[_Worker] = []
    waiting: deque[tuple[_Worker, int, list[int]]] = deque()

    def hand_out(worker: _Worker, slot: int) -> None:
        if chunk := list(islice(todo, CHUNK)):
            worker.send((slot, chunk))
            waiting.append((worker, slot, chunk))

    try:
        descriptor, told = share((source, short_side))
        try:
            for _ in range(workers):
                crew.append(_Worker(descriptor, told, slot_bytes(short_side), source.ahead))
        finally:
            os.close(descriptor)
        for slot in range(source.ahead):
            for worker in crew:
                hand_out(worker, slot)
        while waiting:
            worker, slot, chunk = waiting.popleft()
            pictures = worker.collect(slot)
            hand_out(worker, slot)
            yield from zip(chunk, pictures, strict=True)
    finally:
        for worker in crew:
            worker.end()


def default_workers() -> int:
    """A process a core, at most 16; training processes of one machine share its cores."""
    return max(1, min(16, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


def slot_bytes(short_side: int | None) -> int:
    """Room for a chunk of colour pictures of 2:1; what finds none goes through the pipe."""
    return CHUNK * 2 * 3 * (short_side or 512) ** 2


class _Worker:
    """One process, and the memory shared with it: a slot for each chunk it may have in hand."""

    def __init__(self, source: int, told: bytes, slot: int, slots: int):
        self.slot = slot
        memory = shared_file(slot * slots)
        self.memory = np.frombuffer(mmap.mmap(memory, slot * slots), np.uint8)
        # A plain child over pipes rather than `multiprocessing`: it never imports the user's
        # script again, inherits no CUDA state, and sees the end of its input when this one dies.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        begin = f"from wessl.data.worker_process import work; work({source}, {memory}, {slot})"
        self.process = subprocess.Popen(
            [sys.executable, "-c", begin],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(source, memory),
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            process_group=0,  # Ctrl-C is for the parent, which ends its workers
        )
        os.close(memory)
        self.send(told)

    def send(self, message: object) -> None:
        assert self.process.stdin is not None
        try:
            pickle.dump(message, self.process.stdin, protocol=5)
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Lost(self._ended()) from None

    def collect(self, slot: int) -> Iterator[Pixels | BadPicture]:
        """The pictures of a chunk, copied, so that the slot is free and they may be kept."""
        assert self.process.stdout is not None
        try:
            answers: list[Answer] = pickle.load(self.process.stdout)
        except (EOFError, pickle.UnpicklingError):  # the second if it died while it wrote
            raise Lost(self._ended()) from None
        pictures: list[Pixels | BadPicture] = []
        start = slot * self.slot
        for answer in answers:
            if isinstance(answer, tuple):
                size = int(np.prod(answer))
                pictures.append(self.memory[start : start + size].reshape(answer).copy())
                start += size
            else:
                pictures.append(answer)
        return iter(pictures)

    def _ended(self) -> str:
        return (
            f"a process that decodes pictures ended with code {self.process.wait()}; a negative "
            "code is a signal (-9 often means out of memory: use fewer --workers)"
        )

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
