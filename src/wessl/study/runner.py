"""Many runs side by side: worker processes, one a slot, fed until nothing is left."""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from wessl.devices import wait_briefly
from wessl.study.record import note_failure

State = dict[str, Any]
PATIENCE = 120.0
"""Seconds a stopped worker may take to save its run."""


@dataclass(frozen=True)
class Slot:
    """A place for one run at a time."""

    device: str
    threads: int


class Died(Exception):
    """A worker ended before its job did."""


class Worker:
    """One worker process; in a session of its own, so that Ctrl-C reaches it through us alone."""

    def __init__(self, slot: Slot):
        threads = str(slot.threads)
        path = os.pathsep.join(filter(None, sys.path))
        environment = os.environ | dict(
            PYTHONPATH=path, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads
        )
        wait_briefly(environment)
        self.slot = slot
        self.said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, "-m", "wessl.study.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            env=environment,
            text=True,
            start_new_session=True,
        )

    def do(self, job: State) -> str | None:
        """What went wrong, or None."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        on_slot = job | dict(options=job["options"] | dict(device=self.slot.device))
        answer = ""
        try:
            print(json.dumps(on_slot), file=self.process.stdin, flush=True)
            answer = self.process.stdout.readline()
        except BrokenPipeError:
            pass
        if answer:
            return json.loads(answer)["error"]
        raise Died(f"its process ended with exit code {self.process.wait()}: {self._last_words()}")

    def close(self) -> None:
        """Closing its input ends a worker; one that is training saves first."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self) -> None:
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def _last_words(self) -> str:
        self.said.seek(0)
        return self.said.read().decode(errors="replace").strip()[-1000:] or "it said nothing"


class Runner:
    """Carries out jobs on all slots at once; ``fresh`` gives every job a process of its own."""

    def __init__(
        self, slots: Sequence[Slot], fresh: bool, done: Callable[[State, str | None], None]
    ):
        self.slots, self.fresh, self.done = slots, fresh, done
        self.jobs: queue.SimpleQueue[State] = queue.SimpleQueue()
        self.stopped = threading.Event()
        self.lock = threading.Lock()
        self.workers: set[Worker] = set()

    def run(self, jobs: Sequence[State]) -> None:
        for job in jobs:
            self.jobs.put(job)
        threads = [
            threading.Thread(target=self._serve, args=(slot,), daemon=True)
            for slot in self.slots[: len(jobs)]
        ]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                while thread.is_alive():  # in short waits, or Ctrl-C would not be heard
                    thread.join(0.2)
        finally:
            self.stopped.set()
            with self.lock:
                left = list(self.workers)
            for worker in left:
                worker.close()
            for worker in left:
                worker.wait()

    def _serve(self, slot: Slot) -> None:
        worker: Worker | None = None
        while not self.stopped.is_set():
            try:
                job = self.jobs.get_nowait()
            except queue.Empty:
                break
            if worker is None:
                worker = Worker(slot)
                with self.lock:
                    self.workers.add(worker)
            try:
                error = worker.do(job)
            except Died as death:
                if self.stopped.is_set():  # by us: the run goes on another time
                    return
                error = str(death)
                note_failure(Path(job["folder"]), error)
            self.done(job, error)
            if self.fresh or worker.process.poll() is not None:
                self._dismiss(worker)
                worker = None
        if worker is not None:
            self._dismiss(worker)

    def _dismiss(self, worker: Worker) -> None:
        with self.lock:
            self.workers.discard(worker)
        worker.close()
        worker.wait()
