"""The folder that shards are packed into: what was asked for, what is whole, who works there.

It holds `pack.json` (the request), `shard-000000.tar` and so on, `classes.json`, `index.npz` (where
each picture lies), `skipped.txt` if any were unreadable, and `pack.jsonl`: a line for each shard
that is whole, by which one that was lost or cut later is noticed too.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wessl.data.decoding.bad_pictures import Skipped
from wessl.data.packing.target import REQUEST, refuse_strange
from wessl.errors import UserError
from wessl.files import write_json, write_whole

JOURNAL, SKIPPED = "pack.jsonl", "skipped.txt"
SEED = 0
Journal = dict[int, dict[str, Any]]
"""By shard: its number, its size in bytes, and the pictures of it that could not be read."""


@dataclass(frozen=True)
class Request:
    """What is packed, and how: the same request goes on where it was cut off."""

    location: str
    fingerprint: str
    pictures: int
    short_side: int | None
    quality: int
    per_shard: int
    shuffle: bool

    @property
    def shards(self) -> int:
        return -(-self.pictures // self.per_shard)

    def order(self) -> NDArray[np.int64]:
        n = self.pictures
        return np.random.default_rng(SEED).permutation(n) if self.shuffle else np.arange(n)

    def places(self, shard: int) -> range:
        first = shard * self.per_shard
        return range(first, min(first + self.per_shard, self.pictures))


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Hold a lock on the folder that dies with this process."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out} cannot be made ({error})") from error
    try:
        import fcntl
    except ImportError:  # Windows: who packs twice at once must see to it
        yield
        return
    lock = os.open(out, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise UserError(f"--out {out}: another wessl pack is at work there") from None
    finally:
        os.close(lock)


def begin(out: Path, request: Request) -> bool:
    """Whether there is something to do; never in a folder with other things in it."""
    if not (out / REQUEST).exists():
        refuse_strange(out)
        write_json(out / REQUEST, asdict(request) | {"complete": False})
        return True
    old = json.loads((out / REQUEST).read_text())
    differ = [f"{key} {old.get(key)!r}, not {value!r}" for key, value in asdict(request).items()
              if old.get(key) != value]  # fmt: skip
    if differ:
        raise UserError(
            f"--out {out} holds shards made with {'; '.join(differ)}; give another folder, or "
            "remove this one"
        )
    if old["complete"] and not (out / JOURNAL).exists():
        raise UserError(
            f"--out {out} is packed, but {JOURNAL}, which tells whether its shards are whole, is "
            "missing; put it back, or give a new folder"
        )
    return not old["complete"]


def finished(out: Path, request: Request) -> Journal:
    """Shards that are whole, by the journal and the disk; everything half-written is removed."""
    done: Journal = {}
    if (out / JOURNAL).exists():
        for text in (out / JOURNAL).read_text().splitlines():
            try:
                line = json.loads(text)
            except ValueError:  # cut off in the middle of its last line
                continue
            path = out / shard_name(line["shard"])
            if path.exists() and path.stat().st_size == line["size"]:
                done[line["shard"]] = line
    for path in out.glob(".shard-*.part"):
        path.unlink()
    for shard in range(request.shards):
        if shard not in done:
            (out / shard_name(shard)).unlink(missing_ok=True)
    return done


def shard_name(shard: int) -> str:
    return f"shard-{shard:06}.tar"


def note(out: Path, shard: int, skipped: Skipped) -> dict[str, Any]:
    line = dict(shard=shard, size=(out / shard_name(shard)).stat().st_size, skipped=skipped)
    with (out / JOURNAL).open("a") as file:
        file.write(json.dumps(line) + "\n")
        file.flush()
        os.fsync(file.fileno())
    return line


def write_journal(out: Path, done: Journal) -> None:
    """All lines in the order of the shards, whatever happened on the way."""
    lines = "".join(json.dumps(done[shard]) + "\n" for shard in sorted(done))
    write_whole(out / JOURNAL, lambda temporary: temporary.write_text(lines))


def skipped_in(done: Journal) -> Skipped:
    return [(name, why) for shard in sorted(done) for name, why in done[shard]["skipped"]]


def write_skipped(out: Path, skipped: Skipped) -> None:
    lines = "".join(f"{name}\t{' '.join(why.split())}\n" for name, why in skipped)
    content = lines.encode("utf-8", "surrogateescape")
    write_whole(out / SKIPPED, lambda temporary: temporary.write_bytes(content))
