"""A run folder as the report reads it: leniently, because any part of it may be missing."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from wessl.errors import UserError
from wessl.report.markup import finite
from wessl.run import Run
from wessl.run.findings import AT, Finding, findings, read_log

State = dict[str, Any]
PICTURED = 4
"""Pictures of so many runs go into one page; the others' are in their own reports."""

WARNING = re.compile(AT + r"warning: (.*)$", re.M)
START = re.compile(AT + "start: ", re.M)
"""What a start writes before all else that it has to say."""
UNTOLD = re.compile(r"^\d{4}-\d\d-\d\d (\d\d):(\d\d):(\d\d)  (disk|warning): (.*)$", re.M)
"""By which a start is guessed in the log of a version that did not write so."""
DAY = 24 * 3600


@dataclass(frozen=True)
class Story:
    """What one run has to tell."""

    name: str
    path: Path
    header: State
    rows: list[State]
    """The rows of metrics that have a loss, in order."""
    probes: list[State]
    findings: list[Finding]
    warnings: list[str]
    """What the last start of the run warned of."""
    results: list[State]
    unreadable: list[str]
    """Results that are there but cannot be read, each with the reason."""
    finished: bool

    @property
    def config(self) -> State:
        return part(self.header, "config")

    def group(self, name: str) -> State:
        return part(self.config, name)

    @property
    def steps(self) -> tuple[int, int] | None:
        """Steps taken, and steps planned."""
        if not self.rows:
            return None
        last = self.rows[-1]
        return int(last["step"]), int(finite(last.get("steps")) or last["step"])

    @cached_property
    def seconds(self) -> float | None:
        """Time in training steps, from what each row says a step since the row before took."""
        total, before = 0.0, 0
        for row in self.rows:
            milliseconds = finite(row.get("ms"))
            if milliseconds is not None:
                total += milliseconds / 1e3 * max(0, row["step"] - before)
            before = row["step"]
        return total or None

    @property
    def troubles(self) -> list[Finding]:
        """What spoils the encoder."""
        return [found for found in self.findings if found.spoils]

    def of_kind(self, kind: str) -> list[State]:
        return [result for result in self.results if result.get("kind") == kind]


def part(whole: Any, name: str) -> State:
    """A dictionary inside another, or an empty one."""
    value = whole.get(name) if isinstance(whole, dict) else None
    return value if isinstance(value, dict) else {}


def listed(whole: Any, name: str) -> list[State]:
    """The dictionaries of a list inside a dictionary, or none."""
    value = whole.get(name) if isinstance(whole, dict) else None
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def numbers(values: Any) -> list[float] | None:
    """A list of numbers, or None for anything else."""
    known = [finite(value) for value in values] if isinstance(values, list) else [None]
    return None if None in known else [value for value in known if value is not None]


def read(paths: Sequence[str | Path]) -> list[Story]:
    """The stories of some run folders, each under a name that tells it from the others."""
    folders = [Path(path) for path in paths]
    return [_read(folder, name) for folder, name in zip(folders, short_names(folders), strict=True)]


def _read(folder: Path, name: str) -> Story:
    run = Run(folder)
    header = run.read_config()
    if not isinstance(header, dict):
        raise UserError(f"{folder / 'config.json'} does not describe a run; give a run folder")
    metrics = [row for row in run.read_metrics() if finite(row.get("step")) is not None]
    results, unreadable = _results(run)
    log = read_log(folder)
    return Story(
        name=name,
        path=folder,
        header=header,
        rows=[row for row in metrics if "loss" in row],
        probes=[row for row in metrics if isinstance(row.get("probe"), dict)],
        findings=findings(log),
        warnings=warnings(log),
        results=results,
        unreadable=unreadable,
        finished=(folder / "encoder.safetensors").exists(),
    )


def warnings(log: str) -> list[str]:
    """Those of the last start and of all after it."""
    *before, last = START.split(log)
    return list(dict.fromkeys(WARNING.findall(last) if before else _by_the_second(log)))


def _by_the_second(log: str) -> list[str]:
    """A start wrote at once what it had said, at last of the disk; what is older is of training."""
    start: list[str] = []
    since: list[tuple[int, str]] = []
    for hour, minute, second, kind, words in UNTOLD.findall(log):
        at = 3600 * int(hour) + 60 * int(minute) + int(second)
        if kind == "warning":
            since.append((at, words))
        else:
            start, since = [w for earlier, w in since if (at - earlier) % DAY <= 1], []
    return start + [words for _, words in since]


def _results(run: Run) -> tuple[list[State], list[str]]:
    """The newest evaluation on test pictures of their own first, then those on some held out of the
    labelled ones, last those that knew test pictures; others by name."""
    results, unreadable = [], []
    for path in sorted(run.results.glob("*.json")):
        try:
            value, written = json.loads(path.read_text()), path.stat().st_mtime
        except (OSError, ValueError) as error:
            unreadable.append(f"{path.name}: {error}")
            continue
        if isinstance(value, dict):
            order = (False, False, False, 0.0)
            if value.get("kind") == "evaluation":
                order = (known(value) > 0, held_out(value), resized(value), -written)
            results.append((order, value))
    return [value for _, value in sorted(results, key=lambda pair: pair[0])], unreadable


def known(evaluation: State) -> float:
    """How many of its test pictures were among its labelled ones: too good is what it found."""
    return finite(part(evaluation, "test").get("in_train")) or 0.0


def resized(evaluation: State) -> bool:
    """Whether encoders were shown pictures of another size than they were trained for."""
    return "seen_at" in part(evaluation, "test")


def held_out(evaluation: State) -> bool:
    """Whether it was tested on some of its labelled pictures, which training may have seen."""
    train, test = (part(evaluation, side).get("location") for side in ("train", "test"))
    return train is not None and train == test


def short_names(folders: Sequence[Path]) -> list[str]:
    """The shortest tails of the paths that are all different.

    >>> short_names([Path("a/seed0"), Path("b/seed0")])
    ['a/seed0', 'b/seed0']
    """
    whole = [folder.resolve().parts for folder in folders]
    for length in range(1, max((len(parts) for parts in whole), default=1) + 1):
        tails = ["/".join(parts[-length:]) for parts in whole]
        if len(set(tails)) == len(tails):
            return tails
    return [f"{parts[-1]} ({i})" for i, parts in enumerate(whole, 1)]
