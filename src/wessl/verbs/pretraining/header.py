"""``config.json``: everything that made a run, and the pictures' own description."""

import dataclasses
import shlex
import sys
from typing import Any

import torch

from wessl._version import versions
from wessl.config import Options
from wessl.data.cache.digest import sizes_digest
from wessl.data.pictures import Pictures
from wessl.plan import Plan
from wessl.settings import to_dict
from wessl.verbs.launching.launched import launcher

State = dict[str, Any]


def describe_run(
    plan: Plan,
    options: Options,
    request: State,
    data: State,
    pictures: Pictures,
    init: State | None,
    device: torch.device,
) -> State:
    return dict(
        format=1,
        request=request,
        config=to_dict(plan.config),
        options=to_dict(options),
        choices=[dataclasses.asdict(choice) for choice in plan.choices],
        facts=None if plan.facts is None else dataclasses.asdict(plan.facts),
        data=data,
        normalisation=dict(zip(("mean", "std"), normalisation(pictures), strict=True)),
        init=init,
        command=shlex.join(sys.argv),
        launcher=launcher(),
        versions=versions("torch"),
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
    )


def describe_data(pictures: Pictures) -> State:
    """Where the pictures are, and digests that know them again wherever they lie.

    ``sample`` is of 64 of them; ``digest``, of the size of every picture too, needs a cache, and
    pixels that any machine would make of them, which a GPU's are not.
    """
    cache = pictures.cache
    digest = sizes_digest(cache) if cache is not None and pictures.jpeg is None else None
    return dict(
        location=pictures.source.location,
        pictures=len(pictures) if cache is None else len(cache),
        skipped=None if cache is None else len(cache.skipped),
        decode="stream" if cache is None else "once",
        digest=digest,
        sample=pictures.sample_digest(),
    )


def normalisation(pictures: Pictures) -> tuple[list[float], list[float]]:
    """ImageNet's for colour, so that the encoder fits other tools; the data's own otherwise."""
    if pictures.source.channels == 3:
        return [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    mean, std = pictures.mean_std()
    return mean, [max(s, 1e-3) for s in std]
