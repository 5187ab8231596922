"""torch's elastic agent, for one machine: watches its processes, and starts them all again."""

import os
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from wessl.config import Options

SAVING = 120
"""Seconds that processes asked to stop may take to save themselves before they are killed."""


@dataclass(frozen=True)
class Ended:
    """Why a job ended early."""

    words: str
    code: int
    final: bool
    """Whether another try would end the same way."""


class Agent(LocalElasticAgent):
    """Says what it does in our words; gives up at once on what a restart cannot mend."""

    def __init__(self, count: int, words: list[str], options: Options, tell: Callable[[str], None]):
        self.tell, self.count = tell, count
        self.ended: Ended | None = None
        meeting = RendezvousParameters(
            "c10d", "localhost:0", str(uuid.uuid4()), 1, 1, local_addr="localhost"
        )
        spec = WorkerSpec(
            role="wessl",
            local_world_size=count,
            entrypoint=words[0],
            args=tuple(words[1:]),
            rdzv_handler=get_rendezvous_handler(meeting),
            max_restarts=options.restarts,
            monitor_interval=0.1,
            local_addr="localhost",
        )
        self.logs = tempfile.TemporaryDirectory(prefix="wessl-")
        super().__init__(spec, DefaultLogsSpecs(self.logs.name))

    def work(self) -> Ended | None:
        """To the end; what ended it early is returned, a ``SignalException`` raised."""
        try:
            with self._passing_on(signal.SIGUSR1):
                result = self.run()
        finally:
            self._worker_group.spec.rdzv_handler.shutdown()
            self.logs.cleanup()
        return self.ended if result.is_failed() else None

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        result = super()._monitor_workers(worker_group)
        if result.failures:
            self.ended = describe(result.failures, self.count)
            if self.ended.final:
                self._remaining_restarts = 0
            elif self._remaining_restarts > 0:
                left = f"{self._remaining_restarts - 1} more"
                self.tell(f"{self.ended.words}; all start again from the last checkpoint ({left})")
        return result

    def _shutdown(
        self, death_sig: signal.Signals = signal.SIGTERM, *more: Any, **named: Any
    ) -> None:
        # Longer than torch's half minute: a process that is asked to stop saves itself first.
        if self._pcontext and death_sig in (signal.SIGTERM, signal.SIGINT) and self.ended is None:
            self._pcontext.close(death_sig, SAVING)
        super()._shutdown(death_sig, *more, **named)

    @contextmanager
    def _passing_on(self, signum: signal.Signals) -> Iterator[None]:
        def pass_on(number: int, frame: FrameType | None) -> None:
            for worker in self._worker_group.workers:
                with suppress(ProcessLookupError, TypeError):
                    os.kill(int(worker.id), number)

        before = signal.signal(signum, pass_on)
        try:
            yield
        finally:
            signal.signal(signum, before)


def describe(failures: dict[int, ProcessFailure], count: int) -> Ended:
    """The first to die is the cause: the others died of its death."""
    rank, failure = min(failures.items(), key=lambda item: item[1].timestamp)
    told = failure.error_file_data if isinstance(failure.error_file_data, dict) else {}
    if told.get("final"):
        return Ended(str(told["message"]["message"]), failure.exitcode, True)
    if failure.exitcode < 0:
        how = f"was killed by {signal.Signals(-failure.exitcode).name}"
    else:
        how = f"ended with code {failure.exitcode}"
    return Ended(f"process {rank} of {count} {how}", 1, False)
