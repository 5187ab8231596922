"""Several encoders on one labelled set: measured, compared, shown, and kept in their folders."""

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from wessl.commands.evaluate import Evaluate
from wessl.evaluate.contestants import Contestant
from wessl.evaluate.protocol_names import check_protocols, default_protocols
from wessl.evaluate.suite import Row, details, differences, make_row
from wessl.evaluate.table import explain, explain_confused, print_comparison
from wessl.evaluate.task import Task
from wessl.pretrain.parallel import Team
from wessl.run import Run
from wessl.verbs.evaluating.again import Known, how_made, said_of_known
from wessl.verbs.evaluating.inputs import Say, open_task, read_splits
from wessl.verbs.evaluating.record import describe, plain, save
from wessl.verbs.evaluating.seen import said_of_pretraining
from wessl.verbs.evaluating.verdict import verdict
from wessl.verbs.pages import write_page
from wessl.verbs.pretraining.illustrate import after_evaluation

Record = dict[str, Any]


def on_one_task(
    contestants: list[Contestant],
    asked: Evaluate,
    names: Sequence[str],
    about: Record,
    team: Team,
    say: Say,
    quiet: bool,
) -> Record:
    """The record of all of them; a run folder keeps its own row, and the others' gains on it."""
    settings = asked.measured
    task = team.in_turn(lambda: open_task(asked, contestants, settings.seed, say))
    for path, one in zip(asked.run, contestants, strict=False):
        if note := said_of_pretraining(path, one.name, asked.test or asked.train or ""):
            say(note)
    given = team.together(lambda: read_splits(asked, task))
    names = list(names) or usual(task, list(given))
    team.together(lambda: check_protocols(names, task, given, settings.select))
    found, made = Comparison(settings.seed), how_made(about)
    every = [Known.find(one, task, names, settings, given, made) for one in contestants]
    if not quiet and (words := said_of_known([one.results for one in every])):
        print(words, file=sys.stderr, flush=True)
    for known in every:
        contestant, measured = known.of, known.completed()
        found.add(contestant, task, measured)
        if not quiet and contestant is not contestants[-1]:
            print(in_a_line(contestant.name, measured), file=sys.stderr, flush=True)
    record = (
        about
        | described(asked, task, contestants)
        | dict(
            settings=dataclasses.asdict(settings),
            columns=names,
            rows=[plain(row, asked.network) for row in found.rows],
        )
    )
    of_runs = [found.beside(i) for i in range(len(asked.run))]
    record |= of_runs[0]
    ours = asked.run if team.first else []
    try:
        if not quiet:
            show(record, [one["differences"] for one in of_runs])
    finally:  # even if whoever reads the table has read enough
        for i, path in enumerate(ours):
            save(path, record["rows"][i], kept_by(contestants[i], record | of_runs[i], contestants))
    for i, path in enumerate(ours):
        if Run(path).exists:
            if contestants[i].like.resized_from is not None:  # the gallery stays of the usual size
                write_page(Path(path), say)
                continue
            seen = contestants[i].kept(task.test, settings.precision)
            after_evaluation(Path(path), contestants[i].like, task.test, say, seen)
    return record


def in_a_line(name: str, measured: Record) -> str:
    """For those who wait for the others.

    >>> in_a_line("runs/x", {"k-NN": {"accuracy": 0.5}, "1-shot": {"accuracy": 0.25}})
    'runs/x: k-NN 50.0 %, 1-shot 25.0 %'
    """
    return f"{name}: " + ", ".join(f"{k} {100 * r['accuracy']:.1f} %" for k, r in measured.items())


def usual(task: Task, given: list[str]) -> list[str]:
    """What the labels allow; where draws are given, those instead of ours."""
    allowed = default_protocols(task.train_labels)
    full = [name for name in allowed if name in ("k-NN", "linear-fast")]
    return [*given, *full] if given else allowed


def described(asked: Evaluate, task: Task, contestants: Sequence[Contestant]) -> Record:
    assert asked.train is not None
    tested = asked.test or asked.train
    resized = [one.like for one in contestants if one.like.resized_from is not None]
    size = resized[0].description["image_size"] if resized else None
    return dict(
        kind="evaluation",
        train=describe(asked.train, task.train, task.train_labels, task.digests[0], size),
        test=describe(tested, task.test, task.test_labels, task.digests[1], size)
        | dict(in_train=task.known),
    )


def kept_by(run: Contestant, record: Record, contestants: Sequence[Contestant]) -> Record:
    """What a run keeps: of the baselines, which are the first run's, those that are its own too.

    One that was shown its own size keeps what it would have without ``--image-size``, and so
    nothing of encoders that were shown another one.
    """
    resized = run.like.resized_from is not None
    others = {
        one.name
        for one in contestants
        if not is_baseline_of(run, one) or (not resized and one.like.resized_from is not None)
    }
    kept: Record = {
        name: [one for one in record[name] if one["name"] not in others]
        for name in ("rows", "differences")
    }
    if not resized:
        for side in ("train", "test"):
            kept[side] = {k: v for k, v in record[side].items() if k != "seen_at"}
    return record | kept


def is_baseline_of(run: Contestant, one: Contestant) -> bool:
    """Whether it is one that a run of this encoder and size would have too; others always are."""
    if one.role not in ("pixels", "random"):
        return True
    same = ["resize", "image_size", "mean", "std", "channels"]
    same += ["encoder"] if one.role == "random" else []
    return all(run.like.description[name] == one.like.description[name] for name in same)


@dataclass
class Comparison:
    """Rows of one table, and each with all the others."""

    seed: int
    rows: list[Row] = dataclasses.field(default_factory=list)
    per_class: list[Record | None] = dataclasses.field(default_factory=list)

    def add(self, contestant: Contestant, task: Task, measured: Record) -> None:
        self.rows.append(make_row(contestant, task, measured, self.seed))
        self.per_class.append(details(measured, task, self.seed))

    def beside(self, base: int) -> Record:
        """What is to be said of one row: its classes, and the others' gains on it."""
        own = self.rows[base]
        gains = [
            dict(
                name=row.name,
                role=row.role,
                weights=row.weights,
                base=own.name,
                results=differences(row, own, self.seed),
            )
            for row in self.rows
            if row is not own
        ]
        return dict(differences=gains, per_class=self.per_class[base])


def show(record: Record, gains: Sequence[Sequence[Record]]) -> None:
    print_comparison(record)
    print(explain(record))
    for words in verdict(record["rows"], gains, record["columns"], record["train"]["classes"]):
        print(words)
    if words := explain_confused(record["per_class"], record["rows"][0]["name"]):
        print(words)
