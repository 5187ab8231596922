"""Worker processes, started, spoken to and ended.

A worker writes its pictures into memory that it shares with the parent; only their sizes go through
a pipe. Through the pipe the pictures themselves would be copied four times, in pieces of 64 kB.
"""

import mmap
import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection, wait

import numpy as np

from wessl.data.decoding.bad_pictures import BadPicture
from wessl.data.decoding.decode import Pixels
from wessl.data.sources.source import Source
from wessl.data.workers.process import Answer, Place, Readable
from wessl.data.workers.shared import share, shared_file
from wessl.errors import Lost


class Chunk:
    """Pictures that a worker decodes into one of its slots; `answers` when it has."""

    def __init__(self, worker: "Worker", slot: int, numbers: list[int]):
        self.worker, self.slot, self.numbers = worker, slot, numbers
        self.answers: list[Answer] | None = None

    def pictures(self, copied: bool) -> list[Pixels | BadPicture]:
        """Copied, or as they lie in shared memory, where the slot's next chunk overwrites them."""
        assert self.answers is not None
        pictures: list[Pixels | BadPicture] = []
        memory, start = self.worker.memory, self.slot * self.worker.slot_size
        for answer in self.answers:
            if isinstance(answer, tuple):
                size = int(np.prod(answer))
                picture = memory[start : start + size].reshape(answer)
                pictures.append(picture.copy() if copied else picture)
                start += size
            else:
                pictures.append(answer)
        return pictures


class Worker:
    """One process as its parent sees it: two pipes, and memory in slots of a chunk each."""

    process: "subprocess.Popen[bytes]"

    def __init__(self, slot_size: int, slots: int):
        self.slot_size, self.free = slot_size, list(range(slots))
        self.given: deque[Chunk] = deque()
        with ExitStack() as opened:  # closed again where a process may open no more
            memory = shared_file(slot_size * slots)
            opened.callback(os.close, memory)
            self.memory = np.frombuffer(mmap.mmap(memory, slot_size * slots), np.uint8)
            theirs, ours = os.pipe()
            opened.callback(os.close, theirs)
            self.asked = opened.enter_context(Connection(ours, readable=False))
            ours, answers = os.pipe()
            self.answers = Connection(ours, writable=False)
            self.place = Place(theirs, answers, memory)
            opened.pop_all()

    def give(self, numbers: list[int]) -> Chunk:
        chunk = Chunk(self, self.free.pop(), numbers)
        try:
            self.asked.send_bytes(pickle.dumps((chunk.slot, numbers), protocol=5))
        except BrokenPipeError:
            raise Lost(self._ended()) from None
        self.given.append(chunk)
        return chunk

    def take(self) -> None:
        """The answers to the first chunk it was given."""
        try:
            self.given.popleft().answers = pickle.loads(self.answers.recv_bytes())
        except (EOFError, OSError):  # the second if it died while it wrote
            raise Lost(self._ended()) from None

    def _ended(self) -> str:
        code = self.process.wait()
        return (
            f"a process that decodes pictures ended with code {128 - code if code > 128 else code};"
            " a negative code is a signal (-9 often means out of memory: use fewer --workers)"
        )


class Crew:
    """`count` workers of one source, each with `slots` chunks of memory."""

    def __init__(
        self, source: Readable, short_side: int | None, count: int, slot_size: int, slots: int
    ):
        self.workers: list[Worker] = []
        self.processes: list[subprocess.Popen[bytes]] = []
        descriptor, told = share((source, short_side))
        try:
            for _ in range(count):
                self.workers.append(Worker(slot_size, slots))
            # Elsewhere than on Linux a process that loaded libraries had better not fork.
            at_once = count if sys.platform == "linux" else 1
            shrinks = _shrinks(source, short_side)
            for first in range(0, count, at_once):
                self._start(descriptor, told, shrinks, self.workers[first : first + at_once])
        except BaseException:
            self.end()
            raise
        finally:
            os.close(descriptor)

    def _start(self, source: int, told: bytes, shrinks: bool, workers: list[Worker]) -> None:
        # A plain child over pipes rather than `multiprocessing`: it never imports the user's
        # script again, inherits no CUDA state, and sees the end of its input when this one dies.
        path = os.pathsep.join(entry for entry in sys.path if entry)
        places = [worker.place for worker in workers]
        begin = (
            "from wessl.data.workers.process import Place, split; "
            f"split({source}, {workers[0].slot_size}, {shrinks}, {places})"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", begin],
            stdin=subprocess.PIPE,
            pass_fds=(source, *(descriptor for place in places for descriptor in place)),
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            process_group=0,  # Ctrl-C is for the parent, which ends its workers
        )
        self.processes.append(process)
        for worker in workers:
            worker.process = process
            for descriptor in worker.place:
                os.close(descriptor)
            worker.place = Place(-1, -1, -1)
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as pipe:  # its answers will not come either
            pipe.write(told)

    def take(self) -> list[Worker]:
        """Wait for answers, and take them; the workers that sent some."""
        busy = {worker.answers: worker for worker in self.workers if worker.given}
        ready = [busy[pipe] for pipe in wait(list(busy))]  # type: ignore[index]
        for worker in ready:
            worker.take()
        return ready

    def end(self) -> None:
        for worker in self.workers:
            worker.given.clear()  # which know the worker, and would keep its memory
            worker.asked.close()  # upon which it leaves
            worker.answers.close()
            for descriptor in worker.place:
                if descriptor >= 0:
                    os.close(descriptor)
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _shrinks(source: Readable, short_side: int | None) -> bool:
    """Whether its workers will need torch; if that is not quickly seen, yes."""
    if short_side is None or source.ahead > Source.ahead:
        return short_side is not None
    try:
        some = {0, len(source) // 2, len(source) - 1}
        return any(min(source.size(index)) > short_side for index in some)
    except BadPicture:
        return True
