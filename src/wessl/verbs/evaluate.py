"""``wessl.evaluate`` and ``wessl evaluate``: how good encoders are, and by which protocol."""

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import tyro

from wessl.data.transfer_sets import open_transfer_set
from wessl.errors import UserError
from wessl.evaluate.contestants import Contestant
from wessl.evaluate.progress import bar
from wessl.evaluate.protocol_names import check_protocols, default_protocols, settle
from wessl.evaluate.suite import Settings, details, differences, make_row, measure
from wessl.evaluate.table import explain, explain_confused, print_comparison, print_transfer
from wessl.evaluate.transfer import transfer as transfer_to
from wessl.run import Run
from wessl.verbs.evaluate_inputs import Evaluate, Say, enter, open_task, read_splits
from wessl.verbs.evaluate_record import describe, plain, save, save_transfer
from wessl.verbs.header import versions
from wessl.verbs.illustrate import after_evaluation

Record = dict[str, Any]
Paths = str | Path | Sequence[str | Path]


def evaluate(
    run: Paths,
    train: str | Path | None = None,
    test: str | Path | None = None,
    protocols: Sequence[str] | None = None,
    transfer: str | Path | Sequence[str | Path] = (),
    also: Paths = (),
    splits: Paths = (),
    baselines: bool = True,
    network: Literal["teacher", "student"] = "teacher",
    device: str = "auto",
    cache: str | Path | None = None,
    max_bad: float = 0.5,
    quiet: bool = True,
    **settings: Any,
) -> Record:
    """Measures frozen encoders, one or several: run folders or weights files.

    ``train`` and ``test`` are labelled DATA; without ``test`` a stratified fifth of ``train`` is
    tested on. ``protocols`` are any of ``"1-shot"`` (any number), ``"1%"`` (any share), ``"k-NN"``,
    ``"linear"`` and ``"linear-fast"``; ``splits`` lists of labelled pictures instead of draws;
    ``transfer`` other labelled datasets. ``settings`` are those of ``evaluate.suite.Settings``.
    Returns plain values; what a run folder got is also written into its ``results/``::

        found = wessl.evaluate("runs/photos", "photos/train", "photos/test")
        found["rows"][0]["results"]["5-shot"]["accuracy"]
    """
    known = {f.name for f in dataclasses.fields(Settings)}
    if unknown := sorted(settings.keys() - known):
        raise UserError(f"unknown setting {unknown[0]!r}; known are {', '.join(sorted(known))}")
    asked = Evaluate(
        run=_listed(run),
        train=None if train is None else str(train),
        test=None if test is None else str(test),
        protocols=_listed(protocols or ()),
        transfer=_listed(transfer),
        also=_listed(also),
        splits=_listed(splits),
        baselines=baselines,
        network=network,
        device=device,
        cache=None if cache is None else str(cache),
        max_bad=max_bad,
    )
    return _evaluate(asked, Settings(**settings), quiet)


def _listed(given: Any) -> tuple[str, ...]:
    """One or several; a Run stands for its folder."""
    several = given if isinstance(given, (list, tuple)) else [given]
    return tuple(str(getattr(one, "path", one)) for one in several)


def _evaluate(asked: Evaluate, settings: Settings, quiet: bool) -> Record:
    settings.check()
    if asked.train is None and (
        asked.test or asked.protocols or asked.splits or not asked.transfer
    ):
        raise UserError("give --train (and --test) with labelled pictures, or --transfer datasets")
    names = list(dict.fromkeys(map(settle, asked.protocols)))
    notes: list[str] = []

    def say(words: str) -> None:
        notes.append(words)
        if not quiet:
            print(words, file=sys.stderr, flush=True)

    contestants = list(enter(asked, say, quiet))
    record: Record = dict(format=1, command=shlex.join(sys.argv), versions=versions(), notes=notes)
    if asked.train is not None:
        record |= on_one_task(contestants, asked, settings, names, record, say, quiet)
    if asked.transfer:
        record["transfer"] = on_other_sets(contestants, asked, settings, record, quiet)
    return record


def on_one_task(
    contestants: list[Contestant],
    asked: Evaluate,
    settings: Settings,
    names: list[str],
    about: Record,
    say: Say,
    quiet: bool,
) -> Record:
    assert asked.train is not None
    task = open_task(asked, contestants, settings.seed, say)
    given = read_splits(asked, task)
    usual = default_protocols(task.train_labels)
    full = [name for name in usual if name in ("k-NN", "linear-fast")]
    names = names or ([*given, *full] if given else usual)
    check_protocols(names, task, given, settings.select)
    rows, per_class = [], []
    for contestant in contestants:
        measured = dict(measure(contestant, task, names, settings, given))
        rows.append(make_row(contestant, task, measured, settings.seed))
        per_class.append(details(measured, task))
    made = {key: about[key] for key in ("command", "versions")}
    record: Record = about | dict(
        kind="evaluation",
        train=describe(asked.train, task.train, task.train_labels, task.train_rows),
        test=describe(asked.test or asked.train, task.test, task.test_labels, task.test_rows),
        settings=dataclasses.asdict(settings),
        columns=names,
        rows=[plain(row, asked.network, made) for row in rows],
    )

    def beside(base: int) -> Record:
        """What is to be said of one row: its classes, and the others' gains on it."""
        gains = [
            dict(name=row.name, base=rows[base].name, results=differences(row, rows[base], seed))
            for row in rows
            if row is not rows[base]
        ]
        return dict(differences=gains, per_class=per_class[base])

    seed = settings.seed
    record |= beside(0)
    if not quiet:
        print_comparison(record)
        print(explain(record))
        if words := explain_confused(record["per_class"], rows[0].name):
            print(words)
    for i, path in enumerate(asked.run):
        save(path, record["rows"][i], record | beside(i))
        if Run(path).exists:
            after_evaluation(Path(path), contestants[i].like, task.test, say)
    if not quiet and Run(asked.run[0]).exists:
        print(f"report: {Path(asked.run[0]) / 'report.html'}")
    return record


def on_other_sets(
    contestants: list[Contestant],
    asked: Evaluate,
    settings: Settings,
    about: Record,
    quiet: bool,
) -> Record:
    """The transfer protocol on each dataset, for every encoder."""
    found: Record = {one.name: {} for one in contestants if one.encoder is not None}
    for path in asked.transfer:
        channels = contestants[0].like.description["channels"]
        dataset = open_transfer_set(path, channels, settings.seed, asked.cache)
        for one in contestants:
            if one.encoder is None:
                continue
            with bar(f"{one.name}: {dataset.name}", quiet) as progress:
                result = transfer_to(
                    one.encoder,
                    dataset,
                    settings.select,
                    settings.strength,
                    settings.features,
                    seed=settings.seed,
                    store=one.store,
                    directory=asked.cache,
                    precision=settings.precision,
                    progress=progress,
                )
            kept = {key: value for key, value in result.items() if key != "predicted"}
            made = {key: about[key] for key in ("command", "versions")}
            found[one.name][dataset.name] = kept | made
    if not quiet:
        print_transfer(found)
    for path, one in zip(asked.run, contestants, strict=False):
        save_transfer(path, one.weights, found[one.name], about)
    return found


def command(words: list[str]) -> None:
    @dataclass(frozen=True)
    class Words(Evaluate):
        measured: tyro.conf.OmitArgPrefixes[Settings] = field(default_factory=Settings)

    Words.__doc__ = Evaluate.__doc__
    asked = tyro.cli(Words, args=words, prog="wessl evaluate")
    _evaluate(asked, asked.measured, quiet=False)
