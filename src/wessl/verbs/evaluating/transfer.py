"""Several encoders, and what they should beat, on other datasets."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from wessl.commands.evaluate import Evaluate
from wessl.data.labelled.transfer_sets import TransferSet, open_transfer_sets
from wessl.evaluate.contestants import Contestant, pixels
from wessl.evaluate.features.progress import bar
from wessl.evaluate.protocols.transfer import open_parts, squashed, transfer
from wessl.evaluate.settings import Settings
from wessl.evaluate.statistics.bootstrap import class_mean_difference_interval, difference_interval
from wessl.evaluate.table import print_transfer
from wessl.pretrain.parallel import Team
from wessl.run import Run
from wessl.verbs.evaluating.again import how_made, said_of_known, transfer_key
from wessl.verbs.evaluating.inputs import Say
from wessl.verbs.evaluating.record import save_transfer
from wessl.verbs.pages import write_page

Record = dict[str, Any]


def open_sets(contestants: Sequence[Contestant], asked: Evaluate) -> list[TransferSet]:
    """Before anything is measured, so that a wrong path is told at once."""
    channels = contestants[0].like.description["channels"]
    return open_transfer_sets(asked.transfer, channels, asked.measured.seed, asked.cache)


def on_other_sets(
    contestants: Sequence[Contestant],
    sets: Sequence[TransferSet],
    asked: Evaluate,
    about: Record,
    team: Team,
    say: Say,
    quiet: bool,
) -> Record:
    """Results by encoder and dataset, and the others' gains on the first; raw pixels are seen by
    the same protocol."""
    rows = [Measured(one) for one in contestants]
    made, known = how_made(about), []
    for dataset in sets:
        labels = team.in_turn(partial(decode, dataset, contestants, asked))
        for row in rows:
            key = transfer_key(row.of, dataset, asked.measured, asked.cache, made)
            kept = row.of.results.read({dataset.name: key})
            if not kept:
                with bar(f"{row.of.name}: {dataset.name}", quiet) as progress:
                    result = measure(row.of, dataset, asked.measured, asked.cache, progress) | made
                row.of.results.write(key, result)
            row.add(dataset.name, kept.get(dataset.name) or result, labels)
            known.append(kept)
    if not quiet and (words := said_of_known(known)):
        print(words, file=sys.stderr, flush=True)
    found = {row.of.name: row.results for row in rows}
    gains = [gains_on(row, rows, asked.measured.seed) for row in rows]
    if not quiet:
        print_transfer(found, differences=gains[0])
    others = [
        dict(name=row.of.name, role=row.of.role, weights=row.of.weights, results=row.results)
        for row in rows
        if row.of.role != "run"
    ]
    for path, row, own in zip(asked.run if team.first else (), rows, gains, strict=False):
        save_transfer(path, asked.network, row.of.weights, row.results, others, about, own)
        if Run(path).exists:
            write_page(Path(path), say)
    return dict(transfer=found, transfer_differences=gains[0])


def decode(dataset: TransferSet, contestants: Sequence[Contestant], asked: Evaluate) -> Tensor:
    """For every encoder, so that nobody has to afterwards; gives the test pictures' labels."""
    for one in contestants:
        parts = open_parts(dataset, squashed(one.like), asked.cache)
    return parts["test"].labels


@dataclass
class Measured:
    """One encoder on all sets, and which test pictures of each it got right."""

    of: Contestant
    results: Record = field(default_factory=dict)
    correct: dict[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    """By set, with the pictures' labels."""

    def add(self, name: str, result: Record, labels: Tensor) -> None:
        self.results[name] = {key: value for key, value in result.items() if key != "predicted"}
        self.correct[name] = result["predicted"][0] == labels, labels


def gains_on(base: Measured, rows: Sequence[Measured], seed: int) -> list[Record]:
    """Of all the others, set by set: paired, with the interval of the set's own metric."""
    return [
        dict(
            name=row.of.name,
            role=row.of.role,
            weights=row.of.weights,
            base=base.of.name,
            results={name: gain(name, row, base, seed) for name in row.results},
        )
        for row in rows
        if row is not base
    ]


def gain(name: str, row: Measured, base: Measured, seed: int) -> Record:
    (ours, labels), (theirs, _) = row.correct[name], base.correct[name]
    if row.results[name]["protocol"]["metric"] == "top-1":
        interval = difference_interval(ours[None], theirs[None], seed)
    else:
        interval = class_mean_difference_interval(ours, theirs, labels, seed)
    found = row.results[name]["accuracy"] - base.results[name]["accuracy"]
    return dict(difference=found, interval=list(interval))


def measure(
    one: Contestant, dataset: TransferSet, settings: Settings, cache: str | None, progress: Any
) -> Record:
    measured = partial(
        transfer,
        dataset=dataset,
        select=settings.select,
        strength=settings.strength,
        features=settings.features,
        seed=settings.seed,
        store=one.store,
        directory=cache,
        precision=settings.precision,
        progress=progress,
    )
    return measured(one.like, see=pixels) if one.encoder is None else measured(one.encoder)
