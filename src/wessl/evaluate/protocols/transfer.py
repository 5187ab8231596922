"""How well a frozen encoder's features serve other datasets: logistic regression on all labels.

The paper's protocol: every picture is squashed to 256 x 256 (not its short side resized), the
middle 224 goes through the encoder, and the penalty's strength comes from a sweep of 18.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from wessl.data.cache.build import build_cache
from wessl.data.cache.cache import PictureCache
from wessl.data.labelled.transfer_sets import TransferSet, open_transfer_set
from wessl.data.sources.open import Source
from wessl.errors import UserError
from wessl.evaluate.classifiers.logistic import TRANSFER_STRENGTHS
from wessl.evaluate.features.passes import Progress
from wessl.evaluate.features.trained_encoder import TrainedEncoder
from wessl.evaluate.protocol import Labelled, Result
from wessl.evaluate.protocols.transfer_features import transfer_features
from wessl.evaluate.settings import Precision
from wessl.evaluate.stores.features import FeatureStore

See = Callable[[Sequence[PictureCache], TrainedEncoder], Sequence[Tensor]]
"""From several sets of pictures, and an encoder that says how they are cropped, to features."""

MAX_BAD = 0.01


def transfer(
    encoder: TrainedEncoder,
    dataset: TransferSet | str | Path,
    select: Literal["val", "test"] = "val",
    strength: Literal["mean", "sum"] = "mean",
    features: Literal["raw", "unit"] = "unit",
    strengths: Sequence[float] = TRANSFER_STRENGTHS,
    seed: int = 0,
    store: FeatureStore | None = None,
    directory: str | Path | None = None,
    precision: Precision = "auto",
    max_bad: int | float = MAX_BAD,
    workers: int | None = None,
    progress: Progress | None = None,
    see: See | None = None,
) -> Result:
    """Accuracy on a dataset's test pictures: `open_transfer_set` says what a dataset may be.

    `store` keeps features, `directory` decoded pictures. At most `max_bad` pictures of a part, a
    number or a share, may be unreadable; they are left out, and the protocol counts them. `see`
    makes other features than the encoder's, of pictures cropped as for it.

    ::

        transfer(wessl.load("runs/photos"), "pets:~/data/oxford-iiit-pet")["accuracy"]
    """
    if not isinstance(dataset, TransferSet):
        dataset = open_transfer_set(dataset, encoder.description["channels"], seed, directory)
    look = squashed(encoder)
    parts = open_parts(dataset, look, directory, workers, max_bad)
    caches = [part.cache for part in parts.values()]
    if see is not None:
        every = see(caches, look)
    else:
        kept = FeatureStore(None) if store is None else store
        every = [kept.features(look, c, precision=precision, progress=progress) for c in caches]
    sides = {
        name: part.labelled(found.to(encoder.device))
        for (name, part), found in zip(parts.items(), every, strict=True)
    }
    result = transfer_features(
        sides["train"], sides.get("val"), sides["test"], dataset.metric, select, strength, features,
        strengths, seed,
    )  # fmt: skip
    side, middle = look.description["resize"][0], encoder.description["image_size"]
    result["protocol"] |= dict(
        name=f"transfer to {dataset.name}",
        dataset=dataset.name,
        split=dataset.split,
        transform=f"squashed to {side} x {side}, centre {middle}",
        unreadable={name: len(part.cache.skipped) for name, part in parts.items()},
        data={"train": dataset.train.fingerprint, "test": dataset.test.fingerprint},
    )
    return result


def squashed(encoder: TrainedEncoder) -> TrainedEncoder:
    """The same encoder, whose pictures lose their aspect instead of their ends."""
    side = encoder.description["resize"]
    return TrainedEncoder(encoder.encoder, encoder.description | dict(resize=(side, side)))


@dataclass(frozen=True)
class Part:
    """The training, validation or test pictures of a dataset, decoded."""

    cache: PictureCache
    source: Source

    @property
    def labels(self) -> Tensor:
        # The source's labels, not the cache's: a list may have changed and its pictures not.
        assert self.source.labels is not None
        return torch.from_numpy(self.source.labels)[self.cache.source_index.long()]

    def labelled(self, features: Tensor) -> Labelled:
        return Labelled(features, self.labels.to(features.device), self.source.classes)


def open_parts(
    dataset: TransferSet,
    look: TrainedEncoder,
    directory: str | Path | None,
    workers: int | None = None,
    max_bad: int | float = MAX_BAD,
) -> dict[str, Part]:
    channels, side = look.description["channels"], look.description["resize"][0]
    parts = {}
    for name in ("train", "val", "test"):
        source: Source | None = getattr(dataset, name)
        if source is None:
            continue
        if source.channels != channels:
            raise UserError(
                f"{source.location} has {source.channels} channel{'s' * (source.channels != 1)}, "
                f"the encoder sees {channels}; open it with channels={channels}"
            )
        parts[name] = Part(build_cache(source, side, directory, workers, max_bad), source)
    return parts
