"""Everything that is measured on a device, in sizes that suit it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from wessl.bench.few_shot import measure_few_shot
from wessl.bench.loading import measure_loading
from wessl.bench.steps import measure_steps, subjects
from wessl.bench.turns import Measured
from wessl.bench.views import measure_views


@dataclass(frozen=True)
class Part:
    """What is measured at a time."""

    name: str
    """Its section and what it is of, as in ``step: conv encoder, 2x16``."""
    measure: Callable[[], list[Measured]]


def parts(device: torch.device, quick: bool, half: bool) -> list[Part]:
    """Steps, views, loader and few-shot sweep: some minutes on two cores, quick in seconds.

    ``half`` says whether the device multiplies bf16 itself.
    """
    found = []
    for trainings in subjects(device, quick, half):
        name = trainings[0].name
        seconds, least = (1, 2) if quick else (10, 5)
        steps = partial(measure_steps, trainings, device, seconds, least)
        views = partial(measure_views, trainings[0], device, seconds=0.3 if quick else 2)
        found += [Part(f"step: {name}", steps), Part(f"views: {name}", views)]
    # From 512 files on, processes decode side by side.
    count = 48 if quick else 640 if device.type == "cpu" else 8192
    at_once, lasting = (16, 0.5) if quick else (64, 8)
    loading = partial(measure_loading, device, count, at_once, seconds=lasting)
    classes, features, draws = (5, 32, 2) if quick else (30, 192, 3)
    sweep = partial(measure_few_shot, device, classes, features, draws, rounds=2 if quick else 7)
    return [*found, Part("loader: pictures from files", loading), Part("few-shot: sweep", sweep)]
