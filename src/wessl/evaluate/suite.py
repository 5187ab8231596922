"""Several protocols for several encoders on one training and one test set, side by side."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wessl.evaluate.contestants import Contestant
from wessl.evaluate.features.progress import bar
from wessl.evaluate.protocol import Result
from wessl.evaluate.protocols.few_shot import few_shot
from wessl.evaluate.protocols.linear import linear, linear_fast
from wessl.evaluate.protocols.neighbours import nearest_neighbours
from wessl.evaluate.settings import Settings, usual_draws
from wessl.evaluate.spelling import parse_shots
from wessl.evaluate.statistics.bootstrap import accuracy_interval, difference_interval
from wessl.evaluate.statistics.confusion import per_class
from wessl.evaluate.task import Side, Task

Results = dict[str, Result]


def measure(
    contestant: Contestant,
    task: Task,
    names: Sequence[str],
    settings: Settings,
    given: Mapping[str, list[Tensor]],
) -> Iterator[tuple[str, Result]]:
    """Each protocol's result in turn; those that need an encoder leave out raw pixels.

    ``given`` are draws read from files, by the name of their protocol.
    """
    if contestant.encoder is None:
        names = [name for name in names if name != "linear"]
    if not names:
        return
    sides = task.features(contestant, settings.precision)
    with bar(f"{contestant.name}: protocols", contestant.quiet) as progress:
        for done, name in enumerate(names):
            if progress is not None:
                progress(done, len(names))
            if name == "linear":
                result = on_crops(contestant, task, settings)
            else:
                result = on_features(name, *sides, settings, given.get(name), contestant.device)
            yield name, dict(draws=1) | result


def on_features(
    name: str,
    train: Side,
    test: Side,
    settings: Settings,
    given: list[Tensor] | None,
    device: torch.device,
) -> Result:
    x, z = train["cls"], test["cls"]
    common: dict[str, Any] = dict(select=settings.select, seed=settings.seed, device=device)
    if name == "k-NN":
        return nearest_neighbours(x, z, **common)
    if name == "linear-fast":
        return linear_fast(train, test, epochs=settings.linear_epochs, **common)
    result = few_shot(
        x,
        z,
        given or parse_shots(name),
        settings.draws or usual_draws(len(x.labels.unique())),
        fixed=settings.use_strength,
        strength=settings.strength,
        features=settings.features,
        **common,
    )
    result["protocol"] = result["protocol"] | dict(name=name)
    return result


def on_crops(contestant: Contestant, task: Task, settings: Settings) -> Result:
    assert contestant.encoder is not None
    return linear(
        contestant.encoder,
        task.train,
        task.test,
        contestant.readings,
        epochs=settings.linear_epochs,
        select=settings.select,
        flip=settings.flip,
        seed=settings.seed,
        precision=settings.precision,
        devices=contestant.devices,
        store=contestant.store,
        train_rows=task.train_rows,
        test_rows=task.test_rows,
    )


@dataclass
class Row:
    """One encoder's results, and which test pictures it got right, `(draws, pictures)`."""

    name: str
    role: str
    weights: str | None
    results: Results
    correct: dict[str, Tensor]


def make_row(contestant: Contestant, task: Task, measured: Results, seed: int) -> Row:
    """Adds 95 % intervals; takes the predictions, which are not for JSON, out of the results."""
    correct, results = {}, {}
    for name, result in measured.items():
        guesses = result["predicted"].reshape(-1, len(task.test_labels))
        correct[name] = guesses == task.test_labels
        kept = {key: value for key, value in result.items() if key != "predicted"}
        ends = accuracy_interval(correct[name], seed, share_taken(result))
        results[name] = kept | dict(interval=list(ends))
    return Row(contestant.name, contestant.role, contestant.weights, results, correct)


def share_taken(result: Result) -> float:
    """The share of the training labels in each draw; 0 for a protocol that draws none."""
    labelled = result["protocol"].get("labelled_pictures", [0])
    return max(labelled) / result["protocol"]["train_pictures"]


def differences(row: Row, base: Row, seed: int) -> dict[str, dict[str, Any]]:
    """Accuracy of `row` minus that of `base` on the same draws and pictures, with its interval."""
    return {
        name: dict(
            difference=row.results[name]["accuracy"] - base.results[name]["accuracy"],
            interval=list(
                difference_interval(
                    row.correct[name], base.correct[name], seed, share_taken(row.results[name])
                )
            ),
        )
        for name in row.results
        if name in base.results
    }


def details(measured: Results, task: Task, seed: int = 0) -> dict[str, Any] | None:
    """Accuracy by class and confusion of the few-shot protocol with the most labels, else of any.

    A linear classifier on everything says little to someone who has thirty labels.
    """
    if not measured:
        return None
    few = [name for name, result in measured.items() if "strength" in result]
    name = max(few, key=lambda n: max(measured[n]["protocol"]["labelled_pictures"]), default="")
    name = name or next(iter(measured))
    guesses = measured[name]["predicted"].reshape(-1, len(task.test_labels))
    taken = share_taken(measured[name])
    found = per_class(guesses, task.test_labels, task.classes, seed, taken)
    return dict(protocol=name, few_labels=bool(few)) | found
