"""The names of protocols as a user writes them, and which of them a set of labels allows."""

import re
from collections.abc import Iterable, Mapping

from torch import Tensor

from wessl.data.splits import few_shot_draws
from wessl.errors import UserError
from wessl.evaluate.task import Task

_FIXED = {"k-nn": "k-NN", "knn": "k-NN", "linear": "linear", "linear-fast": "linear-fast"}


def default_protocols(labels: Tensor) -> list[str]:
    """1, 2 and 5 labels a class and 1 % where there are enough, k-NN and the fast linear one.

    >>> import torch
    >>> default_protocols(torch.arange(10).repeat_interleave(4))
    ['1-shot', '2-shot', 'k-NN', 'linear-fast']
    """
    counts = labels.unique(return_counts=True)[1]
    few = [f"{n}-shot" for n in (1, 2, 5) if n <= int(counts.min())]
    percent = ["1%"] * (float(counts.double().mean()) >= 600)
    # The linear one chooses on held-out labels, which one a class does not leave.
    return [*few, *percent, "k-NN", *["linear-fast"] * (int(counts.max()) > 1)]


def settle(name: str) -> str:
    """A name in one spelling.

    >>> settle("kNN"), settle("05-shot"), settle("1.0%")
    ('k-NN', '5-shot', '1%')
    """
    if (fixed := _FIXED.get(name.lower())) is not None:
        return fixed
    shots = parse_shots(name)
    return f"{shots}-shot" if isinstance(shots, int) else f"{100 * shots:g}%"


def parse_shots(name: str) -> int | float:
    """How many labels a class: a whole number, or a share."""
    if (match := re.fullmatch(r"(\d+)-shot", name.lower())) and int(match[1]) > 0:
        return int(match[1])
    if (match := re.fullmatch(r"(\d+\.?\d*|\.\d+)%", name)) and 0 < float(match[1]) <= 100:
        return float(match[1]) / 100
    raise UserError(
        f"--protocols {name!r} is unknown; choose from 1-shot (any number), 1% (any share), k-NN, "
        "linear, linear-fast"
    )


def check_protocols(
    names: Iterable[str], task: Task, given: Mapping[str, list[Tensor]], select: str
) -> None:
    """Stop before hours of features at what the labels do not allow."""
    counts = task.train_labels.unique(return_counts=True)[1]
    if len(counts) < 2:
        raise UserError("--train has pictures of one class only; a classifier needs two or more")
    for name in names:
        if name.startswith("linear"):
            if select == "val" and int(counts.max()) < 2:
                raise UserError(
                    f"--protocols {name} chooses on held-out labels, and every class of --train "
                    "has one; give more, or --select test"
                )
        elif name != "k-NN" and name not in given:
            shots = parse_shots(name)
            if isinstance(shots, int):
                few_shot_draws(task.train_labels, shots, 1, 0, task.classes)
