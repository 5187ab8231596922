"""torch's elastic agent, for one machine: watches its processes, and starts them all again."""

import json
import os
import signal
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from torch.distributed.elastic.agent.server.api import RunResult, WorkerGroup, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.rendezvous import RendezvousParameters
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from wessl.config import Options

SAVING = 120
"""Seconds that processes asked to stop may take to save themselves before they are killed."""
HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1)
"""Signals that torch's agent, or ours, handles while it works."""


@dataclass(frozen=True)
class Ended:
    """Why a job ended early."""

    words: str
    code: int
    final: bool
    """Whether another try would end the same way."""
    bereft: bool = False
    """Whether it was for another process that was lost."""


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
        """To the end; what ended it early is returned, a ``SignalException`` raised.

        It is raised when all have stopped; ``ended`` then says what kept them from saving.
        """
        try:
            with self._handling_signals():
                result = self.run()
        except SignalException:
            told = read_words(self._pcontext.error_files.values()) if self._pcontext else []
            self.ended = next((ended for ended in told if ended.final), None)
            raise
        finally:
            self._worker_group.spec.rdzv_handler.shutdown()
            self.logs.cleanup()
        return self.ended if result.is_failed() else None

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        self.ended = None
        return super()._start_workers(worker_group)

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        # Before torch looks: as soon as it finds one dead it ends the others, by signals.
        handlers = getattr(self._pcontext, "subprocess_handlers", {})
        dead = {rank for rank, handler in handlers.items() if handler.proc.poll()}
        result = super()._monitor_workers(worker_group)
        if result.failures:
            own = {
                rank: failure
                for rank, failure in result.failures.items()
                if rank in dead or read_words([failure.error_file])
            }
            self.ended = describe(own or result.failures, self.count)
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
    def _handling_signals(self) -> Iterator[None]:
        """SIGUSR1 goes to all processes; the caller has its handlers back, torch's too, at the end.

        In a thread there are no handlers to set, and the caller keeps its own.
        """

        def pass_on(number: int, frame: FrameType | None) -> None:
            for worker in self._worker_group.workers:
                with suppress(ProcessLookupError, TypeError):
                    os.kill(int(worker.id), number)

        before = {signum: signal.getsignal(signum) for signum in HANDLED}
        with suppress(ValueError):
            signal.signal(signal.SIGUSR1, pass_on)
        try:
            yield
        finally:
            with suppress(ValueError, TypeError):  # a thread; a handler that is not Python's
                for signum, handler in before.items():
                    signal.signal(signum, handler)


def describe(failures: dict[int, ProcessFailure], count: int) -> Ended:
    """One that died of itself is the cause: those that lost the others died of its death."""
    told = {rank: read_words([failure.error_file]) for rank, failure in failures.items()}

    def how_late(rank: int) -> tuple[bool, bool, bool, int]:
        """Within a second there is no before and after, but words tell cause from consequence."""
        ended = told[rank][0] if told[rank] else None
        killed = failures[rank].exitcode < 0
        return (
            ended is None or not ended.final,
            ended is not None and ended.bereft,
            not killed,
            failures[rank].timestamp,
        )

    rank = min(failures, key=how_late)
    code = failures[rank].exitcode
    if told[rank] and told[rank][0].final:
        return told[rank][0]
    if code < 0:
        how = f"was killed by {signal.Signals(-code).name}"
    else:
        how = f"ended with code {code}"
        if told[rank] and not told[rank][0].bereft:
            how = f"ended: {told[rank][0].words}"
    return Ended(f"process {rank} of {count} {how}", 1, False)


def read_words(error_files: Iterable[str]) -> list[Ended]:
    """What processes left behind, those that did."""
    found = []
    for path in error_files:
        with suppress(OSError, ValueError, KeyError, TypeError):  # cut short, or torch's own
            told = json.loads(Path(path).read_text())
            words = str(told["message"]["message"])
            found.append(Ended(words, int(told["code"]), told["final"], told["bereft"]))
    return found
