"""The paper's linear evaluation: a grid of classifiers on a frozen encoder, in one pass.

`linear` trains on random crops, as published: each batch goes through the encoder once and feeds
every learning rate and every reading. `linear_fast` trains on features computed beforehand.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from wessl.data.cache.cache import PictureCache
from wessl.errors import UserError
from wessl.evaluate.classifiers.knn import check_finite, check_labelled
from wessl.evaluate.classifiers.linear_grid import LinearGrid
from wessl.evaluate.features.passes import EncoderPass, Found, Progress
from wessl.evaluate.features.readings import Reading
from wessl.evaluate.features.trained_encoder import TrainedEncoder, extract_all
from wessl.evaluate.labels import common_labels
from wessl.evaluate.protocol import Labelled, Result
from wessl.evaluate.protocols.linear_choice import Select, choose, make_task, protocol
from wessl.evaluate.protocols.linear_crops import Crops, random_crop, views_said
from wessl.evaluate.protocols.linear_training import Schedule, fit
from wessl.evaluate.settings import Precision
from wessl.evaluate.stores.features import FeatureStore

LINEAR_LRS = (4.8e-3, 1.6e-2, 4.8e-2, 1.6e-1, 4.8e-1, 1.6)


def linear(
    encoder: TrainedEncoder,
    train: PictureCache,
    test: PictureCache,
    readings: Sequence[Reading] = ("cls", "cls4"),
    epochs: int = 100,
    batch_size: int = 4096,
    lrs: Sequence[float] = LINEAR_LRS,
    select: Select = "val",
    flip: bool = True,
    seed: int = 0,
    precision: Precision = "auto",
    encoder_batch: int = 256,
    devices: Sequence[str | torch.device] | None = None,
    store: FeatureStore | None = None,
    progress: Progress | None = None,
    train_rows: Tensor | None = None,
    test_rows: Tensor | None = None,
) -> Result:
    """Accuracy of linear classifiers trained on random crops and flips of all training pictures.

    One classifier for each reading and base learning rate, all trained by one pass over the data.
    `select="val"` chooses among them on a tenth of the training pictures, which none of them sees;
    `select="test"` on the test pictures, as the paper reads. `flip=False` where the side matters.
    `progress(done, total)` counts the training's pictures. In the result `predicted` is a tensor,
    the chosen classifier's labels of the test pictures; all else is plain values. With
    `train_rows` and `test_rows` only these pictures of the caches count.
    """
    labels, test_labels = common_labels(train, test)
    pictures, tested = _rows(train, train_rows), _rows(test, test_rows)
    task = make_task(labels[pictures], test_labels[tested], select, seed)
    schedule = Schedule(len(task.trained), batch_size, epochs, lrs, seed)
    kept = store or FeatureStore(None)
    runner = EncoderPass(encoder, readings, precision, devices, encoder_batch, kept.group)
    # Tested before the training, so that features that are not finite do not cost it.
    options: dict[str, Any] = dict(
        batch_size=encoder_batch, precision=runner.precision, devices=devices
    )
    every = kept.features_all(encoder, test, readings, **options)
    z = {reading: features[tested] for reading, features in every.items()}
    held = extract_all(encoder, train, readings, pictures[task.held], **options, group=kept.group)
    _refuse_infinite(z, "test")
    _refuse_infinite(held, "held-out training")
    crop = random_crop(encoder, flip)
    feed = Crops.make(runner, train, pictures[task.trained], crop, seed, schedule.largest_batch)
    grids = _grids(z, len(task.classes), lrs, runner.device)
    fit(grids, schedule, task.target[task.trained], feed, progress)
    said = protocol("linear", schedule, task, list(z)) | views_said(encoder, crop)
    said["precision"] = f"{runner.precision} encoder, fp32 classifiers"
    return choose(grids, task, held, z, lrs) | dict(protocol=said)


def _refuse_infinite(features: Found, whose: str) -> None:
    for reading, values in features.items():
        if len(values):
            check_finite(values, f"{reading} of the {whose} pictures")


def linear_fast(
    train: Labelled | Mapping[Any, Labelled],
    test: Labelled | Mapping[Any, Labelled],
    reading: str = "cls",
    epochs: int = 100,
    batch_size: int = 4096,
    lrs: Sequence[float] = LINEAR_LRS,
    select: Select = "val",
    seed: int = 0,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
) -> Result:
    """As `linear`, on features of one fixed view of each picture: quicker, and another number.

    `train` and `test` are one reading each, called `reading` in the result, or several by name.
    """
    trains = dict(train) if isinstance(train, Mapping) else {reading: train}
    tests = dict(test) if isinstance(test, Mapping) else {reading: test}
    labels, test_labels = _checked(trains, tests)
    task = make_task(labels, test_labels, select, seed)
    schedule = Schedule(len(task.trained), batch_size, epochs, lrs, seed)
    place = trains[next(iter(trains))].features.device if device is None else torch.device(device)
    x = {name: side.features.to(place) for name, side in trains.items()}
    z = {name: side.features for name, side in tests.items()}

    def feed(_: int, rows: Tensor, report: Callable[[int], None]) -> dict[str, Tensor]:
        chosen = task.trained[rows].to(place)
        report(len(rows))
        return {name: features[chosen] for name, features in x.items()}

    grids = _grids(z, len(task.classes), lrs, place)
    fit(grids, schedule, task.target[task.trained], feed, progress)
    held = {name: features[task.held.to(place)] for name, features in x.items()}
    said = protocol("linear-fast", schedule, task, list(z)) | dict(
        train_views="one fixed view of each picture, no augmentation"
    )
    return choose(grids, task, held, z, lrs) | dict(protocol=said)


def _rows(cache: PictureCache, rows: Tensor | None) -> Tensor:
    return torch.arange(len(cache)) if rows is None else rows.cpu()


def _grids(
    features: Mapping[Any, Tensor], classes: int, lrs: Sequence[float], device: torch.device
) -> dict[Any, LinearGrid]:
    return {name: LinearGrid(z.shape[1], classes, lrs, device) for name, z in features.items()}


def _checked(trains: dict[str, Labelled], tests: dict[str, Labelled]) -> tuple[Tensor, Tensor]:
    """The labels of both sides, one for all readings."""
    if not trains or trains.keys() != tests.keys():
        raise UserError(f"readings differ: train has {list(trains)}, test {list(tests)}")
    for name, side in trains.items():
        check_labelled(side.features, side.labels, f"train features ({name})")
        check_labelled(tests[name].features, tests[name].labels, f"test features ({name})")
        widths = side.features.shape[1], tests[name].features.shape[1]
        if widths[0] != widths[1]:
            raise UserError(
                f"{name}: train features are {widths[0]} wide, test features {widths[1]}"
            )
    both = []
    for sides in (trains, tests):
        first, *others = (side.labels.cpu() for side in sides.values())
        if not all(torch.equal(first, other) for other in others):
            raise UserError("every reading must have the same labels in the same order")
        both.append(first)
    return both[0], both[1]
