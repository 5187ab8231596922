"""Many pictures decoded ahead of their reader, in worker processes."""

import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import IO, Protocol

from wessl.data.bad_pictures import BadPicture
from wessl.data.decode import Pixels
from wessl.errors import Failure


class Readable(Protocol):
    """The part of a source that decoding needs."""

    parallel: bool

    def __len__(self) -> int: ...
    def read(self, index: int, short_side: int | None = None) -> Pixels: ...


def decode_many(
    source: Readable, indices: Iterable[int], short_side: int | None, workers: int | None = None
) -> Generator[tuple[int, Pixels | BadPicture], None, None]:
    """Decode in the given order, ahead of the reader; a picture that fails comes as its reason.

    `workers=0` decodes in this process; `None` does so for fewer than 512 pictures, else takes a
    process a core, at most 16. Each worker is at most two chunks of eight pictures ahead.
    """
    if workers is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        workers = min(16, cores or 1) if source.parallel and len(source) >= 512 else 0
    if workers == 0:
        yield from ((index, attempt(source, index, short_side)) for index in indices)
        return
    todo = iter(indices)
    crew: list[subprocess.Popen[bytes]] = []
    waiting: deque[tuple[subprocess.Popen[bytes], list[int]]] = deque()
    try:
        for _ in range(workers):
            crew.append(_hire(source, short_side))
        for worker in crew * 2:
            _hand_out(worker, todo, waiting)
        while waiting:
            worker, chunk = waiting.popleft()
            pictures = _collect(worker)
            _hand_out(worker, todo, waiting)
            yield from zip(chunk, pictures, strict=True)
    finally:
        for worker in crew:
            worker.kill()
            worker.communicate()


def attempt(source: Readable, index: int, short_side: int | None) -> Pixels | BadPicture:
    """Read a picture, or return why it cannot be read."""
    try:
        return source.read(index, short_side)
    except BadPicture as bad:
        # A new one, without the traceback, which would keep the file's bytes alive.
        return BadPicture(str(bad))


def _hire(source: Readable, short_side: int | None) -> subprocess.Popen[bytes]:
    # A plain child over pipes rather than `multiprocessing`: it never imports the user's script
    # again, inherits no CUDA state, and sees the end of its input when this process dies.
    path = os.pathsep.join(entry for entry in sys.path if entry)
    worker = subprocess.Popen(
        [sys.executable, "-c", "from wessl.data.workers import work; work()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        process_group=0,  # Ctrl-C is for the parent, which ends its workers
    )
    _send(worker, (source, short_side))
    return worker


def _hand_out(
    worker: subprocess.Popen[bytes],
    todo: Iterator[int],
    waiting: deque[tuple[subprocess.Popen[bytes], list[int]]],
) -> None:
    if chunk := list(islice(todo, 8)):
        _send(worker, chunk)
        waiting.append((worker, chunk))


def _send(worker: subprocess.Popen[bytes], message: object) -> None:
    assert worker.stdin is not None
    try:
        pickle.dump(message, worker.stdin, protocol=5)
        worker.stdin.flush()
    except BrokenPipeError:
        raise Failure(_ended(worker)) from None


def _collect(worker: subprocess.Popen[bytes]) -> list[Pixels | BadPicture]:
    assert worker.stdout is not None
    try:
        return list(pickle.load(worker.stdout))
    except EOFError:
        raise Failure(_ended(worker)) from None


def _ended(worker: subprocess.Popen[bytes]) -> str:
    return (
        f"a process that decodes pictures ended with code {worker.wait()}; a negative code is a "
        "signal (-9 often means out of memory: use fewer --workers)"
    )


def work() -> None:
    """The life of a worker process: chunks of indices in, lists of pictures out."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tasks, results = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a library that prints must not write into the pictures
    source, short_side = pickle.load(tasks)
    done: queue.Queue[list[Pixels | BadPicture]] = queue.Queue(maxsize=2)
    # Sending blocks until the parent reads; decoding goes on meanwhile.
    threading.Thread(target=_deliver, args=(done, results), daemon=True).start()
    while True:
        try:
            chunk = pickle.load(tasks)
        except EOFError:
            return
        done.put([attempt(source, index, short_side) for index in chunk])


def _deliver(done: "queue.Queue[list[Pixels | BadPicture]]", results: IO[bytes]) -> None:
    try:
        while True:
            pickle.dump(done.get(), results, protocol=5)
            results.flush()
    except BrokenPipeError:  # the parent is gone, and the main thread may sit in a full queue
        os._exit(1)
