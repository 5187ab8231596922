"""The file of a measurement, and how a new one compares with it."""

import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from wessl._version import versions
from wessl.bench.turns import Measured, times_as_fast
from wessl.devices import SHORT_WAIT, cpu_name
from wessl.errors import UserError

FORMAT = 3
"""Of the file, and of what its numbers are of: one of another format is not compared."""
Key = tuple[str, str, str]
Rows = dict[Key, dict[str, Any]]
SLOWER = 1.05
"""Times of a number from which it is marked: quiet machines repeat themselves to a few percent. A
time must also be beyond three quarters of the rounds of then, for other machines do not."""


@dataclass(frozen=True)
class Change:
    """A number then and now; ``ratio`` is now over then, of an item's seconds or of bytes."""

    section: str
    subject: str
    way: str
    what: str
    ratio: float
    scatter: float = 1.0
    """The third quartile of the rounds of then over their median."""
    beside: float | None = None
    """For a time, its ratio to the plain way's, now over then: load falls on both. Where there is
    none, to that of the plain way which was measured last."""

    @property
    def ours(self) -> bool:
        return is_ours(self.way)

    @property
    def worse(self) -> bool:
        more = self.ratio > max(SLOWER, self.scatter)
        return self.ours and more and (self.beside is None or self.beside > SLOWER)


def is_ours(way: str) -> bool:
    return way.startswith("wessl")


def describe(
    rows: list[Measured], device: torch.device, quick: bool, made: dict[str, Any]
) -> dict[str, Any]:
    return dict(
        format=FORMAT,
        made=made,
        machine=machine(device),
        versions=versions("torch", "numpy"),
        settings=dict(
            device=str(device),
            quick=quick,
            threads=torch.get_num_threads(),
            waiting={name: os.environ.get(name) for name in SHORT_WAIT},
        ),
        rows=[asdict(row) | dict(seconds=row.seconds) for row in rows],
    )


def made() -> dict[str, Any]:
    """When, by what, and of which code, where that is a checkout: asked before it changes."""
    command = shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]])
    return dict(day=datetime.now(UTC).date().isoformat(), command=command, commit=commit())


def commit() -> str | None:
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():  # installed: what git knows there is somebody else's
        return None
    asked = ["git", "-C", str(root), "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def machine(device: torch.device) -> dict[str, Any]:
    cuda = device.type == "cuda"
    return dict(
        device=torch.cuda.get_device_name(device) if cuda else "CPU",
        cpu=cpu_name(),
        cpu_extensions=torch.backends.cpu.get_cpu_capability(),
        cores=os.cpu_count(),
        system=f"{platform.system()} {platform.release().split('-')[0]}",
    )


def read(path: Path) -> dict[str, Any]:
    """What ``--json`` wrote, checked as far as a comparison needs it."""
    try:
        found = json.loads(path.read_text())
        if found["format"] != FORMAT:
            raise UserError(
                f"--compare {path} has format {found['format']}, not {FORMAT}: measure it again"
            )
        for row in found["rows"]:
            if not (row["seconds"] > 0 and row["items"] > 0):
                took = f"{row['seconds']} seconds for {row['items']} items"
                raise ValueError(f"{row['subject']} took {took}")
        # All that will be asked of it, so that nothing fails after minutes.
        missing = {"quick", "device"} - set(found["settings"])
        if missing or not compare(found, found) or differences(found, found):
            raise ValueError("it does not say what was measured")
    except FileNotFoundError:
        raise UserError(f"--compare {path} does not exist; --json writes such a file") from None
    except OSError as error:
        raise UserError(f"--compare {path} cannot be read ({error.strerror})") from error
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        why = f" ({error})" if isinstance(error, ValueError) else ""
        raise UserError(f"--compare {path} is not a file that --json wrote{why}") from error
    return dict(found)


def compare(old: dict[str, Any], new: dict[str, Any]) -> list[Change]:
    """Every number that both hold, in the new one's order. Other sizes are other subjects."""

    def by_key(record: dict[str, Any]) -> Rows:
        return {(row["section"], row["subject"], row["way"]): row for row in record["rows"]}

    before, after, changes, nearest = by_key(old), by_key(new), [], None
    last = {key[:2]: key for key in after}  # of each subject the plain way, if any
    for key, row in after.items():
        if key not in before:
            continue
        was, plain = before[key], last[key[:2]]
        ratio = seconds_of(row) / seconds_of(was)
        scatter = third_quartile(was["rounds"]) / was["seconds"]
        beside = None
        if plain in before and plain != key:
            beside = advantage(before, key, plain) / advantage(after, key, plain)
        elif not is_ours(key[2]):
            nearest = ratio
        elif nearest is not None:
            beside = ratio / nearest
        changes.append(Change(*key, "time", ratio, scatter, beside))
        then, now = (r["facts"].get("bytes") for r in (was, row))
        if then and now:
            changes.append(Change(*key, "memory", now / then))
    return changes


def advantage(rows: Rows, key: Key, other: Key) -> float:
    """How many times as fast one way is as another."""

    def by_item(row: dict[str, Any]) -> list[float]:
        return [seconds / row["items"] for seconds in row["rounds"]]

    return times_as_fast(by_item(rows[key]), by_item(rows[other]))


def third_quartile(rounds: list[float]) -> float:
    return statistics.quantiles(rounds, n=4, method="inclusive")[2] if rounds[1:] else rounds[0]


def seconds_of(row: dict[str, Any]) -> float:
    """Of an item."""
    return float(row["seconds"] / row["items"])


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Names of what else differs between the two, which a ratio may come from."""
    return [
        f"{part} {name}: {old.get(part, {}).get(name)} then, {value} now"
        for part in ("machine", "versions", "settings")
        for name, value in new[part].items()
        if old.get(part, {}).get(name) != value
    ]
