"""What a study says before it starts, and whenever a run ends."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wessl.auto import duration
from wessl.data.pictures import gigabytes
from wessl.report.words import count
from wessl.run import Run
from wessl.study import cost
from wessl.study.asked import Item, Planned
from wessl.study.record import is_trained, read_failure
from wessl.study.runner import Slot
from wessl.study.time_left import Remaining, Runs

State = dict[str, Any]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Work:
    """Which runs there are, which of them failed before, and which are to be done now."""

    every: Runs
    failed: Runs
    todo: Runs

    @classmethod
    def find(cls, planned: Planned, retry: bool) -> "Work":
        # All cells of a seed before the next seed: a study cut short can still compare.
        every = {
            planned.folder(item, seed): (item, seed)
            for seed in planned.asked.seeds
            for item in planned.items
        }
        left = {folder: run for folder, run in every.items() if not finished(planned, folder)}
        # What a user was told to mend is tried again without asking.
        notes = {folder: read_failure(folder) for folder in left}
        failed = {f: run for f, run in left.items() if (note := notes[f]) and note["only_if_asked"]}
        todo = {f: run for f, run in left.items() if retry or f not in failed}
        return cls(every, {} if retry else failed, todo)


def finished(planned: Planned, folder: Path) -> bool:
    measured = planned.read(folder)
    return all(column.name in measured for column in planned.columns)


def announce(planned: Planned, work: Work, slots: Sequence[Slot]) -> str:
    asked, seeds = planned.asked, len(planned.asked.seeds)
    shared = len(planned.items) * seeds - len(work.every)
    lines = [
        f"{asked.study.name}, size {asked.size.name}, on {asked.data}:",
        f"{count(len(planned.items), 'cell')}, {count(seeds, 'seed')}: "
        f"{count(len(work.every), 'run')}" + (f", as {shared} would be repeats" if shared else ""),
    ]
    done = len(work.every) - len(work.failed) - len(work.todo)
    if done:
        lines.append(f"{done} {'is' if done == 1 else 'are'} finished already")
    if work.failed:
        lines.append(f"{len(work.failed)} failed before; --retry tries again:")
        lines += [f"  {name(run)}: {first_line(folder)}" for folder, run in work.failed.items()]
    if work.todo:
        on_cpu = slots[0].device == "cpu"
        devices = len(slots) if on_cpu else len({slot.device for slot in slots})
        runs = {folder: Run(folder) for folder in work.todo}
        fresh = [folder for folder, run in runs.items() if not is_trained(run)]
        configs = [item.config for item, _ in work.todo.values()]
        compiled = asked.options.get("compile") != "off"
        seconds, size = cost.total(
            configs,
            planned.facts,
            len(slots),
            planned.measuring,
            devices,
            compiled,
            planned.fresh,
            asked.slim or asked.study.kind == "overhead",
        )
        seconds *= Remaining.of(planned, work.todo, len(slots)).share
        size *= len(fresh) / len(work.todo)
        measured = planned.measuring is not None
        doing = ["training"] * (bool(fresh) or not measured) + ["measuring"] * measured
        what = " and ".join(doing)
        on_disk = "stay on disk" if asked.slim else "on disk"
        disk = f"; {gigabytes(size)} {on_disk}" if fresh else ""
        at_once = min(len(slots), len(work.todo))
        lines.append(
            f"{len(work.todo)} to do, {at_once} at a time: roughly {duration(seconds)} of "
            f"{what}{disk}"
        )
        if there := len(work.todo) - len(fresh):
            they = "is" if there == 1 else "are"
            lines.append(f"{there} of these {they} trained already and only to be measured")
        if busy := sum(run.busy for run in runs.values()):
            they, them = ("is", "it") if busy == 1 else ("are", "them")
            lines.append(
                f"{busy} of these {they} being trained by another process, which is waited for; "
                f"this study then measures {them}"
            )
    return "\n".join(lines)


def name(run: tuple[Item, int]) -> str:
    return f"{run[0].name}, seed {run[1]}"


def first_line(folder: Path) -> str:
    return ((read_failure(folder) or {}).get("error") or "unknown").splitlines()[0]


class Progress:
    """A line for every run that ends: what it measured or why it failed, and the time left."""

    def __init__(self, planned: Planned, runs: Runs, at_once: int, say: Say):
        self.planned, self.count, self.say = planned, len(runs), say
        self.remaining = Remaining.of(planned, runs, at_once)
        self.began, self.lock = time.monotonic(), threading.Lock()
        self.gone: set[Path] = set()
        self.failed: set[Path] = set()

    @property
    def ended(self) -> int:
        return len(self.gone)

    def done(self, job: State, error: str | None) -> None:
        with self.lock:
            self.gone.add(Path(job["folder"]))
            if error is not None:
                self.failed.add(Path(job["folder"]))
            words = self._numbers(job) if error is None else f"failed: {error.splitlines()[0]}"
            self.say(f"{self.ended}/{self.count}  {job['name']}: {words}{self._rest()}")

    def _rest(self) -> str:
        if self.ended == self.count:
            return ""
        left = self.remaining.seconds(time.monotonic() - self.began, self.gone, self.failed)
        return f" (about {duration(left)} left)" if math.isfinite(left) else ""

    def _numbers(self, job: State) -> str:
        measured = self.planned.read(Path(job["folder"]))
        return ", ".join(
            f"{c.name} {c.factor * measured[c.name]['value']:.{c.digits}f}"
            for c in self.planned.columns
        )
