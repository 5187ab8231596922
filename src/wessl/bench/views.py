"""Views of a batch of pictures that lie on the device: the kernels beside the plain code."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from wessl.bench.pictures import pictures
from wessl.bench.steps import Subject, batch_shape
from wessl.bench.turns import Measured, Work, in_turns
from wessl.data.batch import Batch
from wessl.data.views import kernels
from wessl.data.views.config import Views
from wessl.data.views.make import make_views

STD = 0.25


def measure_views(subject: Subject, device: torch.device, seconds: float) -> list[Measured]:
    """A row ``wessl``, and where that takes kernels a row ``plain``."""
    config = subject.config
    batch = pictures(*batch_shape(config), device)
    works: dict[str, Work] = {"wessl": lambda: views_of(batch, config.views)}
    if uses_kernels(batch, config.views):
        works["plain"] = lambda: plain_views_of(batch, config.views)
    name = f"{subject.name}, batch {len(batch)}, from {batch.pixels.shape[1]} px"
    return [
        Measured("views", name, way, times, len(batch))
        for way, times in in_turns(works, device, seconds).items()
    ]


def views_of(batch: Batch, views: Views) -> list[Tensor]:
    channels = batch.pixels.shape[3]
    indices = torch.arange(len(batch), device=batch.pixels.device)
    return make_views(batch, indices, views, 0, 1, [0.5] * channels, [STD] * channels)


def plain_views_of(batch: Batch, views: Views) -> list[Tensor]:
    with without_kernels():
        return views_of(batch, views)


def uses_kernels(batch: Batch, views: Views) -> bool:
    return all(kernels.usable(batch.pixels, crop) for crop in views.crops)


@contextmanager
def without_kernels() -> Iterator[None]:
    """A switch that users do not have."""
    own = kernels.usable
    kernels.usable = lambda pixels, crop: False
    try:
        yield
    finally:
        kernels.usable = own
