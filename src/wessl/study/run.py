"""``run_study``: from a study's name to its table and figure."""

import json
import shlex
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from wessl.errors import Interrupted, UserError
from wessl.evaluate.spelling import settle_all
from wessl.files import write_json, write_whole
from wessl.report.words import count
from wessl.study import terminal
from wessl.study.asked import Asked, Item, Planned
from wessl.study.data import find_data
from wessl.study.figure import draw
from wessl.study.planning import plan_study
from wessl.study.progress import Progress, Say, Work, announce, finished
from wessl.study.runner import Runner, Slot
from wessl.study.sizes import SIZES
from wessl.study.slots import make_slots
from wessl.study.studies import STUDIES, known
from wessl.study.table import build, otherwise
from wessl.study.text import comma_separated, markdown

State = dict[str, Any]
Text = str | Path | None


def run_study(
    name: str,
    data: str | Path | None = None,
    size: Literal["smoke", "small", "paper"] = "smoke",
    seeds: int | Sequence[int] | None = None,
    only: Sequence[str] = (),
    protocols: Sequence[str] = (),
    epochs: float | None = None,
    train: str | Path | None = None,
    test: str | Path | None = None,
    transfer: Sequence[str | Path] = (),
    out: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    draws: int | None = None,
    parallel: int | None = None,
    per_device: int = 1,
    retry: bool = False,
    slim: bool = False,
    device: str = "auto",
    cache: str | None = None,
    compile: Literal["auto", "on", "off"] = "auto",
    quiet: bool = False,
) -> State:
    """Runs what of a study is not done, then writes and returns its table.

    ``data`` is a folder with ``train/`` and ``test/`` (or ``val/``), or any labelled DATA.
    ``seeds`` is a number or a list; ``only`` names some of its cells; ``settings`` are those of
    ``wessl.pretrain``, for all cells (``{"encoder.size": "S"}``). Runs lie in ``runs/`` beside
    ``out`` and are shared by studies::

        found = wessl.study("where-how", "photos/", size="small", seeds=3)
        found["rows"][-1]["results"]["1-shot"]["difference"]
    """
    study, sized = known("study", name, STUDIES), known("--size", size, SIZES)
    asked = Asked(
        study=study,
        size=sized,
        data=find_data(text(data), text(train), text(test), size),
        out=Path(out if out is not None else Path("studies") / name),
        seeds=as_seeds(sized.seeds if seeds is None else seeds),
        only=tuple(only),
        protocols=settle_all(tuple(protocols)),
        transfer=tuple(str(path) for path in transfer),
        epochs=epochs,
        settings=dict(settings or {}),
        options=dict(device=device, cache=cache, compile=compile, keep=1),
        draws=draws,
        slim=slim,
        command=command(),
    )
    slots = make_slots(device, parallel, per_device, alone=study.kind == "overhead")
    return answer(asked, slots, retry, quiet)


def answer(asked: Asked, slots: list[Slot], retry: bool, quiet: bool) -> State:
    """Plan, runs, table, figure."""
    say: Say = (lambda _: None) if quiet else terminal.say
    there = read_table(asked.out)
    planned = plan_study(asked)
    if there and not continues(asked, there):
        was = " ".join([there["study"], f"--size {there['size']}", *there.get("otherwise", ())])
        seeds = f"seed{'s' * (len(there['seeds']) > 1)} {', '.join(map(str, there['seeds']))}"
        say(
            f"note: the table in {asked.out} ({was}, of {there['train']}, {seeds}) will be "
            "replaced; its runs are kept, and --out writes the new table elsewhere"
        )
    carry_out(planned, slots, retry, say)
    table = build(replace(planned, items=shown(planned)))
    write(table, asked.out)
    if not quiet:
        terminal.print_table(table)
    return table


def continues(asked: Asked, there: State) -> bool:
    """Whether a table stays what it was, none of its seeds lost."""
    same = dict(
        study=asked.study.name,
        size=asked.size.name,
        train=asked.data.train,
        test=asked.data.test,
        otherwise=otherwise(asked),
    )
    return {key: there.get(key) for key in same} == same and {*there["seeds"]} <= {*asked.seeds}


def read_table(out: Path) -> State | None:
    """The table that stands there; files of that name that no study wrote are not written over."""
    names = ("table.json", "table.md", "table.csv", "figure.svg", "figure.png")
    there = [name for name in names if (out / name).exists()]
    if not there:
        return None
    try:
        found = json.loads((out / "table.json").read_text())
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict) or found.get("kind") != "study":
        raise UserError(
            f"--out {out} holds {there[0]}, which no study wrote; name a folder of its own"
        )
    return found


def carry_out(planned: Planned, slots: list[Slot], retry: bool, say: Say) -> None:
    work = Work.find(planned, retry)
    say(announce(planned, work, slots))
    jobs = [planned.job(item, seed) for item, seed in work.todo.values()]
    planned.runs.mkdir(parents=True, exist_ok=True)
    progress = Progress(planned, work.todo, len(slots), say)
    try:
        Runner(slots, planned.fresh, progress.done).run(jobs)
    except KeyboardInterrupt as stopped:
        signum = stopped.signum if isinstance(stopped, Interrupted) else signal.SIGINT
        words = f"after {progress.ended} of {count(len(jobs), 'run')}; finished runs are kept"
        raise Interrupted(signum, f"{words}; the same command goes on") from stopped


def shown(planned: Planned) -> list[Item]:
    """The cells asked for and those finished before: ``--only`` costs a table none of its rows."""
    asked = {item.cell.name for item in planned.items}
    there = asked | {
        item.cell.name
        for item in planned.every
        if all(finished(planned, planned.folder(item, seed)) for seed in planned.asked.seeds)
    }
    compared = {None, *there}
    return [i for i in planned.every if i.cell.name in there and i.cell.base in compared]


def write(table: State, out: Path) -> None:
    """``table.json``, ``.md`` and ``.csv``, then ``figure.svg`` and ``.png``."""
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / "table.json", table)
    write_text(out / "table.md", markdown(table))
    write_text(out / "table.csv", comma_separated(table))
    draw(table, out)


def write_text(path: Path, words: str) -> None:
    write_whole(path, lambda temporary: temporary.write_text(words, encoding="utf-8"))


def as_seeds(asked: int | Sequence[int]) -> tuple[int, ...]:
    seeds = tuple(range(asked)) if isinstance(asked, int) else tuple(dict.fromkeys(asked))
    if not seeds or min(seeds) < 0:
        raise UserError(f"--seeds {asked}: at least one, and none below 0")
    return seeds


def command() -> str:
    """As typed; the program by its name alone, wherever it lies."""
    program = Path(sys.argv[0]).name
    return shlex.join(["wessl" if program == "__main__.py" else program, *sys.argv[1:]])


def text(path: Text) -> str | None:
    return None if path is None else str(path)
