"""How well a frozen encoder's features serve other datasets: logistic regression on all labels.

The paper's protocol: every picture is squashed to 256 x 256 (not its short side resized), the
middle 224 goes through the encoder, and the penalty's strength comes from a sweep of 18.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F

from wessl.data.cache import build_cache
from wessl.data.sources import Source
from wessl.data.splits import held_out
from wessl.data.transfer_sets import Metric, TransferSet, open_transfer_set
from wessl.errors import UserError
from wessl.evaluate.accuracy import score, scores
from wessl.evaluate.feature_store import FeatureStore
from wessl.evaluate.features import TrainedEncoder
from wessl.evaluate.logistic import TRANSFER_STRENGTHS, LogisticFit, logistic
from wessl.evaluate.passes import Precision, Progress
from wessl.evaluate.protocol import Labelled, Result

HELD_OUT = 0.2


@dataclass(frozen=True)
class _Sweep:
    """What every fit of one call has in common."""

    strengths: tuple[float, ...]
    on: Literal["mean", "sum"]

    def fit(self, side: Labelled, only: int | None = None) -> LogisticFit:
        wanted = self.strengths if only is None else (self.strengths[only],)
        scale = len(side) if self.on == "sum" else 1
        return logistic(side.features, side.labels, [s / scale for s in wanted])

    def best(self, accuracies: Sequence[float]) -> int:
        """Of equally good strengths the strongest, which trusts the training pictures least."""
        top = max(accuracies)
        return max(
            (i for i, accuracy in enumerate(accuracies) if accuracy == top),
            key=lambda i: self.strengths[i],
        )


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
    max_bad: int | float = 0.01,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Result:
    """Accuracy on a dataset's test pictures: `open_transfer_set` says what a dataset may be.

    `store` keeps features, `directory` decoded pictures. At most `max_bad` pictures of a part, a
    number or a share, may be unreadable; they are left out, and the protocol counts them.

    ::

        transfer(wessl.load("runs/photos"), "pets:~/data/oxford-iiit-pet")["accuracy"]
    """
    channels = encoder.description["channels"]
    if not isinstance(dataset, TransferSet):
        dataset = open_transfer_set(dataset, channels, seed, directory)
    squashing = squashed(encoder)
    side = squashing.description["resize"][0]
    kept = FeatureStore(None) if store is None else store
    unreadable = {}

    def read(part: str, source: Source) -> Labelled:
        if source.channels != channels:
            raise UserError(
                f"{source.location} has {source.channels} channels, the encoder sees {channels}; "
                f"open it with channels={channels}"
            )
        cache = build_cache(source, side, directory, workers, max_bad)
        unreadable[part] = len(cache.skipped)
        # The source's labels, not the cache's: a list may have changed and its pictures not.
        assert source.labels is not None
        labels = torch.from_numpy(source.labels)[cache.source_index.long()]
        found = kept.features(squashing, cache, precision=precision, progress=progress)
        return Labelled(found.to(encoder.device), labels.to(encoder.device), source.classes)

    result = transfer_features(
        read("train", dataset.train),
        None if dataset.val is None else read("val", dataset.val),
        read("test", dataset.test),
        dataset.metric,
        select,
        strength,
        features,
        strengths,
        seed,
    )
    result["protocol"] |= dict(
        name=f"transfer to {dataset.name}",
        dataset=dataset.name,
        split=dataset.split,
        transform=f"squashed to {side} x {side}, centre {encoder.description['image_size']}",
        unreadable=unreadable,
        data={"train": dataset.train.fingerprint, "test": dataset.test.fingerprint},
    )
    return result


def squashed(encoder: TrainedEncoder) -> TrainedEncoder:
    """The same encoder, whose pictures lose their aspect instead of their ends."""
    side = encoder.description["resize"]
    return TrainedEncoder(encoder.encoder, encoder.description | dict(resize=(side, side)))


def transfer_features(
    train: Labelled,
    val: Labelled | None,
    test: Labelled,
    metric: Metric = "top-1",
    select: Literal["val", "test"] = "val",
    strength: Literal["mean", "sum"] = "mean",
    features: Literal["raw", "unit"] = "unit",
    strengths: Sequence[float] = TRANSFER_STRENGTHS,
    seed: int = 0,
) -> Result:
    """The same on features. Train and val together make the classifier that is tested.

    With `select="val"` the strength is the best on `val`, or where there is none on a stratified
    fifth of `train`, drawn by `seed` and put back afterwards; `select="test"` takes the best on
    the test pictures. `strength` and `features` as in `few_shot`.
    """
    if select not in ("val", "test"):
        raise UserError(f"select must be val or test, not {select!r}")
    train, test = (_as(features, part) for part in (train, test))
    val = None if val is None else _as(features, val)
    everything = train if val is None else _join(train, val)
    sweep = _Sweep(tuple(strengths), strength)
    if select == "test":
        fit = sweep.fit(everything)
        guesses = fit.predict(test.features)
        accuracies = [score(guess, test.labels, metric) for guess in guesses]
        chosen = sweep.best(accuracies)
        predicted, converged = guesses[chosen], fit.converged[chosen]
    else:
        learn, check = _parts(train, seed) if val is None else (train, val)
        guesses = sweep.fit(learn).predict(check.features)
        accuracies = [score(guess, check.labels, metric) for guess in guesses]
        chosen = sweep.best(accuracies)
        fit = sweep.fit(everything, only=chosen)
        predicted, converged = fit.predict(test.features)[0], fit.converged[0]
    how = {
        ("test", None): "on the test pictures (the paper's way, optimistic)",
        ("val", True): "on the dataset's validation pictures, then trained on those too",
        ("val", False): f"on a held-out {HELD_OUT:.0%} of the training pictures, then put back",
    }
    result = scores(predicted, test, metric) | dict(
        strength=sweep.strengths[chosen],
        sweep=dict(zip(map(str, sweep.strengths), accuracies, strict=True)),
        converged=bool(converged),
    )
    result["protocol"] = dict(
        name="transfer",
        metric=metric,
        classifier="multi-class logistic regression, L2 penalty, free intercept",
        strengths=list(sweep.strengths),
        strength_on=f"{strength} loss",
        strength_chosen=how[select, None if select == "test" else val is not None],
        features="each scaled to length 1" if features == "unit" else "as they are",
        seed=seed,
        train_pictures=len(everything),
        test_pictures=len(test),
        classes=len(everything.labels.unique()),
    )
    return result


def _parts(train: Labelled, seed: int) -> tuple[Labelled, Labelled]:
    rows = (part.to(train.labels.device) for part in held_out(train.labels, HELD_OUT, seed))
    kept, held = (Labelled(train.features[r], train.labels[r], train.classes) for r in rows)
    if not len(held):
        raise UserError("every class has one training picture: none to choose on; use select=test")
    return kept, held


def _join(a: Labelled, b: Labelled) -> Labelled:
    both = zip((a.features, a.labels), (b.features, b.labels), strict=True)
    features, labels = (torch.cat(pair) for pair in both)
    return Labelled(features, labels, a.classes)


def _as(kind: Literal["raw", "unit"], side: Labelled) -> Labelled:
    scaled = F.normalize(side.features, dim=1) if kind == "unit" else side.features
    return Labelled(scaled, side.labels, side.classes)
