"""Several encoders, and what they should beat, on other datasets."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from wessl.commands.evaluate import Evaluate
from wessl.data.transfer_sets import TransferSet, open_transfer_set
from wessl.evaluate.contestants import Contestant, pixels
from wessl.evaluate.progress import bar
from wessl.evaluate.settings import Settings
from wessl.evaluate.table import print_transfer
from wessl.evaluate.transfer import open_parts, squashed, transfer
from wessl.pretrain.parallel import Team
from wessl.run import Run
from wessl.verbs.evaluate_inputs import Say
from wessl.verbs.evaluate_record import save_transfer
from wessl.verbs.illustrate import write_page

Record = dict[str, Any]


def on_other_sets(
    contestants: Sequence[Contestant],
    asked: Evaluate,
    about: Record,
    team: Team,
    say: Say,
    quiet: bool,
) -> Record:
    """Results by encoder and dataset; raw pixels are seen by the same protocol."""
    found: Record = {one.name: {} for one in contestants}
    settings = asked.measured
    made = {key: about[key] for key in ("command", "versions")}
    channels = contestants[0].like.description["channels"]
    for path in asked.transfer:
        dataset = team.in_turn(partial(read, path, contestants, asked, channels))
        for one in contestants:
            with bar(f"{one.name}: {dataset.name}", quiet) as progress:
                result = measure(one, dataset, settings, asked.cache, progress)
            kept = {key: value for key, value in result.items() if key != "predicted"}
            found[one.name][dataset.name] = kept | made
    if not quiet:
        print_transfer(found)
    others = [
        dict(name=one.name, role=one.role, weights=one.weights, results=found[one.name])
        for one in contestants
        if one.role != "run"
    ]
    for path, one in zip(asked.run if team.first else (), contestants, strict=False):
        save_transfer(path, one.weights, found[one.name], others, about)
        if Run(path).exists:
            write_page(Path(path), say)
    return found


def read(
    path: str, contestants: Sequence[Contestant], asked: Evaluate, channels: int
) -> TransferSet:
    """Opened, and decoded for every encoder, so that nobody has to afterwards."""
    dataset = open_transfer_set(path, channels, asked.measured.seed, asked.cache)
    for one in contestants:
        open_parts(dataset, squashed(one.like), asked.cache)
    return dataset


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
