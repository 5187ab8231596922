"""Everything that is measured on a device, in sizes that suit it."""

from collections.abc import Callable, Iterator

import torch

from wessl.bench.few_shot import measure_few_shot
from wessl.bench.loading import measure_loading
from wessl.bench.steps import measure_steps, subjects
from wessl.bench.turns import Measured
from wessl.bench.views import measure_views

Say = Callable[[str], None]


def measure_all(
    device: torch.device, quick: bool, half: bool, say: Say
) -> Iterator[list[Measured]]:
    """Steps, views, loader and few-shot sweep, each as soon as it is measured.

    Some minutes on two cores, quick in seconds. ``half`` says whether the device multiplies bf16
    itself.
    """
    for trainings in subjects(device, quick, half):
        say(f"a step of {trainings[0].name}")
        seconds, least = (1, 2) if quick else (10, 5)
        yield measure_steps(trainings, device, seconds, least)
        say(f"views of {trainings[0].name}")
        yield measure_views(trainings[0], device, seconds=0.3 if quick else 2)
    say("pictures from files")
    # From 512 files on, processes decode side by side.
    count = 48 if quick else 640 if device.type == "cpu" else 8192
    yield measure_loading(device, count, 16 if quick else 64, seconds=0.5 if quick else 8)
    say("the few-shot sweep")
    classes, features, draws = (5, 32, 2) if quick else (30, 192, 3)
    yield measure_few_shot(device, classes, features, draws, rounds=2 if quick else 7)
