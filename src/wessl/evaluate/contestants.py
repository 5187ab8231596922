"""Who is measured: encoders, and what every encoder should beat."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from wessl.config import EncoderConfig
from wessl.data.cache.cache import PictureCache
from wessl.evaluate.features.passes import settle_precision
from wessl.evaluate.features.progress import bar
from wessl.evaluate.features.readings import Reading
from wessl.evaluate.features.trained_encoder import TrainedEncoder, readings_of
from wessl.evaluate.settings import Precision
from wessl.evaluate.stores.computed_by import computed_by
from wessl.evaluate.stores.features import FeatureStore, weights_digest
from wessl.evaluate.stores.results import ResultStore
from wessl.run import build_encoder
from wessl.settings import from_dict

WIDE = 768
"""From this width on the paper's linear protocol reads [CLS] and the mean patch, below it the last
layer's [CLS] and the last four."""
PIXELS = 32
"""Raw pixels are compared at this side at most."""


@dataclass(frozen=True)
class Contestant:
    """A name, and features by reading; raw pixels have no encoder."""

    name: str
    role: str
    encoder: TrainedEncoder | None
    store: FeatureStore
    device: torch.device
    like: TrainedEncoder
    quiet: bool = False
    devices: Sequence[str] | None = None
    """Several GPUs that share the pictures out; without them `device` sees all."""
    results: ResultStore = field(default_factory=lambda: ResultStore(None))

    @cached_property
    def weights(self) -> str | None:
        return None if self.encoder is None else weights_digest(self.encoder)

    @property
    def readings(self) -> tuple[Reading, ...]:
        if self.encoder is None:
            return ("cls",)
        wanted = ("cls", "cls+mean") if self.encoder.dim >= WIDE else ("cls", "cls4")
        return tuple(r for r in readings_of(self.encoder) if r in wanted)

    @property
    def places(self) -> list[torch.device]:
        return [torch.device(d) for d in self.devices] if self.devices else [self.device]

    def sees(self, precision: Precision) -> dict[str, Any]:
        """All that its numbers are made of, but for pictures, labels and protocol."""
        described = self.like.description
        return dict(
            weights=self.weights,
            transform={name: described[name] for name in ("resize", "image_size", "mean", "std")},
            readings=self.readings,
            precision=None if self.encoder is None else settle_precision(precision, self.places),
            computed_by=computed_by([self.device, *self.places]),
        )

    def kept(self, cache: PictureCache, precision: Precision) -> Tensor | None:
        """Its [CLS] features of a cache, where they lie in its folder."""
        if self.encoder is None:
            return None
        return self.store.kept(self.encoder, cache, precision, self.places)

    def features(
        self, train: PictureCache, test: PictureCache, precision: Precision
    ) -> list[dict[Reading, Tensor]]:
        """Of both sets; where they are one, computed once."""
        caches = [train] if train is test else [train, test]
        if self.encoder is None:
            found = [{"cls": x} for x in pixels(caches, self.like)]
            return found * (3 - len(caches))  # type: ignore[return-value]
        every = []
        for cache in caches:
            with bar(f"{self.name}: features", self.quiet) as progress:
                every.append(
                    self.store.features_all(
                        self.encoder,
                        cache,
                        self.readings,
                        precision=precision,
                        progress=progress,
                        devices=self.devices,
                    )
                )
        return every * (3 - len(caches))


def untrained(like: TrainedEncoder, seed: int = 0) -> TrainedEncoder:
    """The same architecture with random weights."""
    description: dict[str, Any] = like.description
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = from_dict(EncoderConfig, description["encoder"])
        encoder = build_encoder(config, description["channels"])
    return TrainedEncoder(encoder.to(like.device), description, like.usual)


@torch.no_grad()
def pixels(
    caches: Sequence[PictureCache], like: TrainedEncoder, batch_size: int = 512
) -> list[Tensor]:
    """Pixels from 0 to 1, `(n, width)` of each cache, all equally wide.

    Small pictures that all have one size as they are; others as the encoder sees them, made small.
    """
    heights, widths = (
        torch.cat([getattr(cache, side) for cache in caches]) for side in ("heights", "widths")
    )
    sides = heights.unique().tolist() + widths.unique().tolist()
    plain = len(sides) == 2 and max(sides) <= PIXELS
    mean, std = (
        torch.tensor(like.description[name], device=like.device)[:, None, None]
        for name in ("mean", "std")
    )
    every = []
    for cache in caches:
        parts = []
        for part in torch.arange(len(cache)).split(batch_size):
            batch = cache.batch(part)
            if plain:
                parts.append(batch.pixels.flatten(1).float() / 255)
            else:
                seen = like.prepare(batch.map(lambda x: x.to(like.device))) * std + mean
                small = F.adaptive_avg_pool2d(seen, min(PIXELS, seen.shape[-1]))
                parts.append(small.flatten(1).float().cpu())
        every.append(torch.cat(parts))
    return every
