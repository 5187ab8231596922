"""From what is asked of a study to all that it will do; what cannot work is said here."""

import dataclasses
import hashlib
import json

import numpy as np

from wessl import plan
from wessl.data.sources import Source
from wessl.data.transfer_sets import TransferSet, open_transfer_set
from wessl.errors import UserError
from wessl.evaluate.protocol import HELD_OUT
from wessl.evaluate.settings import Settings, usual_draws
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
    facts, kind = plan.look_at(source, device), asked.study.kind
    protocols = asked.protocols or possible(asked.size.protocols, source, tested is not None)
    if "linear" in protocols and tested is None:
        raise UserError("--protocols linear needs --test pictures of their own; or linear-fast")
    # Said in full, so that asking for the usual number of draws is not another measurement.
    draws = asked.draws or asked.size.draws or usual_draws(_classes(source))
    settings = Settings(draws=draws)
    digests = digest(source), None if tested is None else digest(tested)
    measured = json.dumps([digests, dataclasses.asdict(settings)], sort_keys=True)
    others = transfer_sets(asked, source.channels)
    every = make_items(asked, facts, device, digests[0])
    return Planned(
        asked,
        chosen(every, asked.only),
        every,
        columns(kind, protocols, [other.name for other in others]),
        facts,
        digests,
        f"study-{hashlib.sha256(measured.encode()).hexdigest()[:8]}",
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
        () if kind == "transfer" else protocols,
        round(HELD_OUT * len(source)) if tested is None else len(tested),
        _classes(source),
        draws,
        elsewhere=sum(len(part) for part in parts if part is not None),
        diversity=kind == "diversity" or asked.slim,
    )


def _classes(source: Source) -> int:
    assert source.labels is not None
    return len(np.unique(source.labels))


def possible(protocols: tuple[str, ...], source: Source, has_test: bool) -> tuple[str, ...]:
    """Those there are enough labels for."""
    assert source.labels is not None
    least = int(np.unique(source.labels, return_counts=True)[1].min())
    names = [p for p in protocols if not p.endswith("-shot") or int(p[:-5]) <= least]
    return tuple("linear-fast" if p == "linear" and not has_test else p for p in names)


def transfer_sets(asked: Asked, channels: int) -> list[TransferSet]:
    if asked.study.kind != "transfer":
        return []
    if not asked.transfer:
        raise UserError(
            "the study transfer needs --transfer with other labelled datasets: food101:PATH, "
            "pets:PATH, ..., or a folder with train/ and test/"
        )
    return [open_transfer_set(path, channels) for path in asked.transfer]
