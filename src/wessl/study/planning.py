"""From what is asked of a study to all that it will do; what cannot work is said here."""

import dataclasses
import hashlib
import json
from typing import cast

import numpy as np
import torch

from wessl import plan
from wessl.data.cache.cache import PictureCache
from wessl.data.labelled.splits import held_out
from wessl.data.labelled.transfer_sets import TransferSet, open_transfer_sets
from wessl.data.sources.open import Source
from wessl.errors import UserError
from wessl.evaluate.protocol import HELD_OUT
from wessl.evaluate.protocol_names import check_protocols
from wessl.evaluate.settings import Settings, usual_draws
from wessl.evaluate.task import Task
from wessl.study.asked import Asked, Planned, chosen, make_items
from wessl.study.columns import columns
from wessl.study.cost import Measuring
from wessl.study.data import digest, open_labelled, refuse_other_classes

USELESS = {
    "overhead": (
        ("protocols", "epochs", "draws"),
        "measures time and memory of a fixed number of steps",
    ),
    "transfer": (
        ("protocols",),
        "measures logistic regression on the datasets of --transfer",
    ),
}
"""What a kind of study has no use for, and what it does instead."""


def plan_study(asked: Asked) -> Planned:
    """Opens the pictures and tries every config."""
    refuse_useless(asked)
    cache = asked.options.get("cache")
    device = plan.find_device(asked.options.get("device", "auto"))
    source = open_labelled(asked.data.train, "--train", cache)
    tested = None
    if asked.data.test is not None:
        tested = open_labelled(asked.data.test, "--test", cache)
        refuse_other_classes(source, tested)
    facts = dataclasses.replace(plan.look_at(source, device), cores=1)  # for each run
    kind = asked.study.kind
    protocols = () if kind in ("overhead", "transfer") else allowed(asked, source, tested)
    # Said in full, so that asking for the usual number of draws is not another measurement.
    draws = asked.draws or asked.size.draws or usual_draws(_classes(source))
    settings = Settings(draws=draws)
    others = transfer_sets(asked, source.channels)
    every = make_items(asked, facts, device, digest(source))
    return Planned(
        asked,
        chosen(every, asked.only),
        every,
        columns(kind, protocols, [other.name for other in others]),
        facts,
        source.fingerprint,
        record_name(source, tested, others, settings),
        settings,
        None
        if kind == "overhead"
        else what_is_measured(asked, protocols, draws, source, tested, others),
    )


def refuse_useless(asked: Asked) -> None:
    """Flags that would change nothing."""
    names, instead = USELESS.get(asked.study.kind, ((), ""))
    given = [f"--{name}" for name in names if getattr(asked, name)]
    if given:
        raise UserError(
            f"{' and '.join(given)} would change nothing: the study {asked.study.name} {instead}"
        )


def what_is_measured(
    asked: Asked,
    protocols: tuple[str, ...],
    draws: int,
    source: Source,
    tested: Source | None,
    others: list[TransferSet],
) -> Measuring:
    kind = asked.study.kind
    parts = [part for other in others for part in (other.train, other.val, other.test)]
    return Measuring(
        protocols,
        round(HELD_OUT * len(source)) if tested is None else len(tested),
        _classes(source),
        draws,
        elsewhere=sum(len(part) for part in parts if part is not None),
        diversity=kind == "diversity" or asked.slim,
    )


def _classes(source: Source) -> int:
    assert source.labels is not None
    return len(np.unique(source.labels))


def record_name(
    source: Source, tested: Source | None, others: list[TransferSet], settings: Settings
) -> str:
    """Another where any picture or label has changed, or how they are measured."""
    elsewhere = sorted((o.name, files(o.train), files(o.val), files(o.test)) for o in others)
    made_of = [files(source), files(tested), elsewhere, dataclasses.asdict(settings)]
    found = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode())
    return f"study-{found.hexdigest()[:8]}"


def files(source: Source | None) -> str:
    return "" if source is None else source.fingerprint


def allowed(asked: Asked, source: Source, tested: Source | None) -> tuple[str, ...]:
    """The protocols asked for, or those of the size that there are enough labels for."""
    if "linear" in asked.protocols and tested is None:
        raise UserError("--protocols linear needs --test pictures of their own; or linear-fast")
    task = of_labels(source, tested)
    usual = asked.size.protocols
    if tested is None:
        usual = tuple("linear-fast" if name == "linear" else name for name in usual)
    names = asked.protocols or tuple(name for name in usual if is_possible(name, task))
    check_protocols(names, task, {}, Settings.select)
    return names


def is_possible(protocol: str, task: Task) -> bool:
    try:
        check_protocols([protocol], task, {}, Settings.select)
    except UserError:
        return False
    return True


def of_labels(source: Source, tested: Source | None) -> Task:
    """What an evaluation will have of labels, before any picture is decoded."""
    assert source.labels is not None
    labels, pictures = torch.from_numpy(source.labels), cast(PictureCache, source)
    if tested is not None:
        return Task(pictures, pictures, labels, labels)
    rest, held = held_out(labels, HELD_OUT, Settings.seed)
    if not len(held):
        raise UserError(f"{source.location} has one picture a class, none to test on; give --test")
    return Task(pictures, pictures, labels[rest], labels[held], rest, held)


def transfer_sets(asked: Asked, channels: int) -> list[TransferSet]:
    if asked.study.kind != "transfer":
        return []
    if not asked.transfer:
        raise UserError(
            "the study transfer needs --transfer with other labelled datasets: food101:PATH, "
            "pets:PATH, ..., or a folder with train/ and test/"
        )
    return open_transfer_sets(asked.transfer, channels)
