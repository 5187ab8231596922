"""``wessl.bench`` and ``wessl bench``: how fast this machine does our work."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import torch
from rich.console import Console

from wessl.allocator import memory_kept
from wessl.bench import record
from wessl.bench.suite import Part, parts
from wessl.bench.table import compared_lines, in_short, measured_lines
from wessl.bench.turns import UNEVEN, Measured
from wessl.commands.bench import Bench
from wessl.devices import (
    OtherPrograms,
    busy_cores,
    has_bf16,
    is_out_of_memory,
    make_current,
    usable_cores,
)
from wessl.errors import Failure, UserError
from wessl.files import write_json
from wessl.plan import find_device

BUSY = 0.1
"""Share of our cores that others use, from which on it is told."""


def bench(
    device: str = "auto",
    json: str | Path | None = None,
    compare: str | Path | None = None,
    quick: bool = False,
    only: Sequence[str] = (),
    say: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Measures training steps, views, loader and few-shot sweep, prints them, and returns all.

    Beside them stands the plain way of doing the same, where there is one. ``json`` is
    a file to write what was found to, ``compare`` such a file of an earlier time; ``only`` takes
    the parts whose names have one of these words in them, such as "views" or "ViT"::

        wessl.bench(json="before.json")
        wessl.bench(json="after.json", compare="before.json")
    """
    console = Console(markup=False, emoji=False)  # paths may hold [brackets]
    where = find_device(device)
    old = None if compare is None else record.read(Path(compare))  # before minutes are spent
    if old is not None:
        refuse_incomparable(old["settings"], f"--compare {compare}", where.type, quick)
    if json is not None:
        refuse_unwritable(Path(json))
    make_current(where)
    chosen = those_of(parts(where, quick, has_bf16(where)), only)
    say = say or (lambda words: console.print(f"measuring {words} ..."))
    console.print("Medians of rounds in turns; 2.00x is twice as fast as the last line below it")
    terms = ["m: heads"] + ["MFU: share of the data sheet's rate"] * (where.type == "cuda")
    terms += [
        "rate: share of the rate of large matrix products here",
        "excess: loss above the best",
    ]
    console.print("; ".join(terms))
    busy = busy_cores()
    if busy > BUSY * usable_cores():
        console.print(
            f"warning: other programs keep {busy:.1f} of {usable_cores()} cores busy, which makes "
            "times longer and ratios uneven; measure again when they are done"
        )
    rows: list[Measured] = []
    found: dict[str, Any] = {}
    made = record.made() | dict(busy_cores=busy)
    with memory_kept(where.type == "cpu"), out_of_memory_in_words(where), kept(json, console):
        others = OtherPrograms()
        for part in chosen:
            say(part.name)
            rows += (measured := part.measure())
            made["busy_cores"] = max(made["busy_cores"], meanwhile := others.busy_cores())
            found = record.describe(rows, where, quick, made)
            console.print(*measured_lines(measured), sep="\n")
            if meanwhile > BUSY * usable_cores():
                console.print(
                    f"  meanwhile other programs kept {meanwhile:.1f} of {usable_cores()} cores "
                    "busy: do not rely on these"
                )
            if json is not None:  # each time: whoever stops the rest keeps what was measured
                write(unfinished(Path(json)), found)
    if json is not None:
        write(Path(json), found)
        unfinished(Path(json)).unlink()
    if quick:
        console.print("--quick: sizes too small to judge speed by; it shows that all of it works")
    elif told := list(in_short(rows)):
        console.print("\nIn short, ours:", *told, sep="\n  ")
    if uneven := sum(row.uneven for row in rows):
        console.print(
            f"uneven: {uneven} of {len(rows)} rows, of which one round took over {UNEVEN} times as "
            "long as another; something else was at work, so do not rely on these"
        )
    if old is not None:
        changes = record.compare(old, found)
        console.print(
            f"\nNow over then ({compare}); below 1 is better; in brackets, beside the plain way"
        )
        for difference in record.differences(old, found):
            console.print(f"differs: {difference}")
        console.print(*compared_lines(changes), sep="\n")
        slower, of = sum(c.worse for c in changes), sum(c.ours for c in changes)
        console.print(
            f"{slower} of our {of} numbers are worse by more than 5 % (marked). A time is so only "
            "if it is beyond three quarters of the rounds of then, and more than 5 % worse beside "
            "the plain way too (or, where there is none, the plain way measured before it)"
        )
    return found


@contextmanager
def kept(json: str | Path | None, console: Console) -> Iterator[None]:
    """Says where the numbers of a measurement are that somebody stops."""
    try:
        yield
    except KeyboardInterrupt:
        if json is not None and (part := unfinished(Path(json))).exists():
            console.print(f"stopped: what was measured so far is in {part}")
        raise


@contextmanager
def out_of_memory_in_words(device: torch.device) -> Iterator[None]:
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise Failure(
            f"out of memory on {device}, which others may use too: free it, or see with --quick "
            "that all of it works"
        ) from error


def those_of(every: list[Part], only: Sequence[str]) -> list[Part]:
    """With one of the words in their names; a word that is in none is refused."""
    for word in only:
        if not any(word.lower() in part.name.lower() for part in every):
            names = "; ".join(part.name for part in every)
            raise UserError(f"--only {word!r} is in no part's name; there are {names}")
    found = [p for p in every if any(word.lower() in p.name.lower() for word in only)]
    return found if only else every


def refuse_incomparable(then: dict[str, Any], flag: str, kind: str, quick: bool) -> None:
    """What was measured in other sizes, before minutes are spent."""
    if then["quick"] != quick:
        was, now = ("without", "with") if quick else ("with", "without")
        raise UserError(
            f"{flag} was measured {was} --quick, and this is {now} it: they have no number in "
            "common; measure both alike"
        )
    if (was := then["device"].split(":")[0]) != kind:
        raise UserError(
            f"{flag} was measured on {was}, and this is {kind}, in other sizes: set --device "
            f"{was}, or compare with a file that was measured on {kind}"
        )


def unfinished(path: Path) -> Path:
    """Beside it, so that a measurement of before stays until there is a whole new one."""
    return path.with_name(f"{path.name}.part")


def refuse_unwritable(path: Path) -> None:
    """Before minutes are spent."""
    if path.is_dir():
        raise UserError(f"--json {path} is a folder; name a file in it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        why = f"{error.strerror}: {error.filename}"
        raise UserError(f"--json {path} cannot be written ({why}); name another place") from error


def write(path: Path, found: dict[str, Any]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, found)
    except OSError as error:
        raise Failure(f"--json {path}: {error}") from error


def command(asked: Bench) -> None:
    bench(**vars(asked))
