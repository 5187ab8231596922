"""Which classifier of a linear grid counts: labels, held-out pictures, the choice, the result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from wessl.data.labelled.splits import fraction_draws
from wessl.errors import UserError
from wessl.evaluate.classifiers.linear_grid import LinearGrid, Scores
from wessl.evaluate.protocols.linear_training import Schedule

Select = Literal["val", "test"]
State = dict[str, Any]

_HELD_OUT = 0.1


@dataclass(frozen=True)
class Task:
    """Labels as numbers of classes, and what the training pictures are used for."""

    classes: Tensor  # (c,) the labels' own values
    target: Tensor  # (n,) of every training picture
    test_target: Tensor  # (t,), -1 for a class that training lacks
    trained: Tensor  # training pictures the classifiers see
    held: Tensor  # training pictures that choose among them; none when the test pictures do


def make_task(labels: Tensor, test_labels: Tensor, select: Select, seed: int) -> Task:
    """A tenth of each class, at least one picture, is held out; a class's only one never is."""
    if select not in ("val", "test"):
        raise UserError(f"select must be val or test, not {select!r}")
    labels, test_labels = labels.cpu(), test_labels.cpu()
    classes, target, counts = labels.unique(return_inverse=True, return_counts=True)
    held = labels.new_empty(0, dtype=torch.int64)
    if select == "val":
        drawn = fraction_draws(labels, _HELD_OUT, draws=1, seed=seed)[0]
        held = drawn[counts[target[drawn]] > 1]
        if len(held) == 0:
            raise UserError(
                "select='val' holds out training pictures, and every class has only one; "
                "give more labelled pictures or select='test'"
            )
    rest = torch.ones(len(labels), dtype=torch.bool)
    rest[held] = False
    at = torch.searchsorted(classes, test_labels).clamp(max=len(classes) - 1)
    test_target = torch.where(classes[at] == test_labels, at, -1)
    return Task(classes, target, test_target, rest.nonzero()[:, 0], held)


def choose(
    grids: Mapping[Any, LinearGrid],
    task: Task,
    held: Mapping[Any, Tensor],
    test: Mapping[Any, Tensor],
    lrs: Sequence[float],
) -> State:
    """Accuracies of the whole grid on the test pictures, and the one that counts.

    The best is the most accurate where it is chosen, of equals the one with the lower loss.
    """
    cells, predicted = [], []
    for name, grid in grids.items():
        found = grid.score(test[name], task.test_target)
        decides = grid.score(held[name], task.target[task.held]) if len(task.held) else found
        cells += [_cell(name, lr, i, found, decides) for i, lr in enumerate(lrs)]
        predicted += list(found.predicted.cpu().unbind(1))

    def best(of: list[int]) -> int:
        return min(of, key=lambda i: (-cells[i]["select_accuracy"], cells[i]["select_loss"]))

    chosen = best(list(range(len(cells))))
    of_reading = [
        cells[best([i for i, cell in enumerate(cells) if cell["reading"] == name])]
        for name in grids
    ]
    return dict(
        accuracy=cells[chosen]["accuracy"],
        chosen={key: cells[chosen][key] for key in ("lr", "reading")},
        per_reading={
            cell["reading"]: {key: cell[key] for key in ("lr", "accuracy")} for cell in of_reading
        },
        grid=cells,
        predicted=task.classes[predicted[chosen]],
    )


def _cell(name: str, lr: float, i: int, found: Scores, decides: Scores) -> State:
    return dict(
        reading=name,
        lr=lr,
        accuracy=found.accuracy[i].item(),
        select_accuracy=decides.accuracy[i].item(),
        select_loss=decides.loss[i].item(),
    )


def protocol(name: str, schedule: Schedule, task: Task, readings: Sequence[str]) -> State:
    """Every setting of the training and of the choice, written out."""
    return dict(
        name=name,
        classifier="softmax regression on plain features, free intercept, starting at zero",
        optimiser="SGD, Nesterov momentum 0.9, no weight decay",
        epochs=schedule.epochs,
        batch_size=schedule.largest_batch,
        batch_size_asked=schedule.batch_size,
        base_lrs=list(schedule.lrs),
        lr="base x batch / 256, cosine to 0 from step to step",
        lr_factor=schedule.scale,
        readings=list(readings),
        selected_on=(
            "held-out training pictures, a tenth of each class; not retrained on them"
            if len(task.held)
            else "the test pictures, as in the paper (optimistic)"
        ),
        seed=schedule.seed,
        classes=len(task.classes),
        train_pictures=len(task.trained),
        held_out_pictures=len(task.held),
        test_pictures=len(task.test_target),
    )
