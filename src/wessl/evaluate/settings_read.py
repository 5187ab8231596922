"""Which settings each protocol reads: only with another of these is its result another one."""

import dataclasses
from typing import Any

from wessl.errors import UserError
from wessl.evaluate.settings import Settings, usual_draws
from wessl.evaluate.spelling import parse_shots

GIVEN, TRANSFER = "given lists", "transfer"
READ = {
    "k-NN": ("select", "seed"),
    "linear": ("select", "seed", "linear_epochs", "flip"),
    "linear-fast": ("select", "seed", "linear_epochs"),
    "few-shot": ("select", "seed", "draws", "use_strength", "strength", "features"),
    GIVEN: ("select", "use_strength", "strength", "features"),
    TRANSFER: ("select", "seed", "strength", "features"),
}
"""By protocol; without the encoder's precision, which every protocol has from the features."""


def settings_read(protocol: str, settings: Settings, classes: int) -> dict[str, Any]:
    """Those of a protocol, defaults settled; of one that is not in the table all.

    >>> settings_read("5-shot", Settings(), 10) == settings_read("5-shot", Settings(draws=30), 10)
    True
    >>> settings_read("linear-fast", Settings(flip=False), 10)
    {'select': 'val', 'seed': 0, 'linear_epochs': 100}
    """
    every = dataclasses.asdict(settings) | dict(draws=settings.draws or usual_draws(classes))
    del every["precision"]
    return {name: every[name] for name in READ.get(_kind(protocol), every)}


def _kind(protocol: str) -> str:
    if protocol in READ:
        return protocol
    try:
        parse_shots(protocol)
    except UserError:
        return protocol
    return "few-shot"
