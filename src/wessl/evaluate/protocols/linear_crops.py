"""What the linear evaluation trains on: random crops, through the encoder as they are made."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wessl.data.batch import Batch
from wessl.data.cache.cache import PictureCache
from wessl.data.views.config import Crop, Photometric, Views
from wessl.data.views.make import make_views
from wessl.errors import UserError
from wessl.evaluate.features.passes import EncoderPass, Found, near
from wessl.evaluate.features.trained_encoder import TrainedEncoder


def random_crop(encoder: TrainedEncoder, flip: bool) -> Crop:
    return Crop(
        encoder.description["image_size"],
        count=1,
        area=(0.08, 1.0),
        flip=0.5 if flip else 0.0,
        photometric=Photometric.off(),
    )


def views_said(encoder: TrainedEncoder, crop: Crop) -> dict[str, Any]:
    return dict(
        train_views="random resized crop" + ", horizontal flip" * bool(crop.flip),
        crop_area=list(crop.area),
        crop_aspect=list(crop.aspect),
        interpolation=crop.interpolation,
        image_size=crop.size,
        test_views="centre crop",
        resize=encoder.description["resize"],
    )


@dataclass
class Crops:
    """Features of fresh random crops of each step's pictures, in the same tensors every time."""

    runner: EncoderPass
    cache: PictureCache
    pictures: Tensor
    views: Views
    seed: int
    out: Found

    @classmethod
    def make(
        cls,
        runner: EncoderPass,
        cache: PictureCache,
        pictures: Tensor,
        crop: Crop,
        seed: int,
        largest: int,
    ) -> "Crops":
        out = runner.allocate(largest, runner.device)
        return cls(runner, near(cache, runner.device), pictures, Views((crop,)), seed, out)

    def __call__(self, step: int, rows: Tensor, report: Callable[[int], None]) -> Found:
        def view(encoder: TrainedEncoder, batch: Batch, numbers: Tensor) -> Tensor:
            mean, std = encoder.description["mean"], encoder.description["std"]
            return make_views(batch, numbers, self.views, self.seed, step, mean, std)[0]

        numbers = self.pictures[rows]
        found = {reading: features[: len(rows)] for reading, features in self.out.items()}
        self.runner.run(self.cache, numbers, view, found, lambda done, _: report(done))
        for features in found.values():
            finite = torch.linalg.vector_norm(features, torch.inf, dim=1).isfinite().cpu()
            if not finite.all():
                bad = [self.cache.names[i] for i in numbers[~finite].tolist()]
                raise UserError(
                    f"the encoder gives NaN or infinite features for crops of {len(bad)} training "
                    f"pictures: {', '.join(bad[:5])}"
                )
        return found
