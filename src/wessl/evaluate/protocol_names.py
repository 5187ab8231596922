"""Which protocols a set of labels allows."""

from collections.abc import Iterable, Mapping

from torch import Tensor

from wessl.errors import UserError
from wessl.evaluate.spelling import parse_shots
from wessl.evaluate.task import Task


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
                _check_shots(shots, task)


def _check_shots(shots: int, task: Task) -> None:
    """Every class has as many labelled pictures as are to be drawn of it."""
    values, counts = task.train_labels.unique(return_counts=True)
    short = (counts < shots).nonzero().flatten()
    if not len(short):
        return
    least = short[counts[short].argmin()]
    value, there = int(values[least]), int(counts[least])
    name = f"class {task.classes[value]!r}" if task.classes is not None else f"class {value}"
    others = f" ({len(short)} classes have too few)" if len(short) > 1 else ""
    held = "" if task.train_rows is None else ", after a fifth was held out to be tested on"
    raise UserError(
        f"--protocols {shots}-shot: {name} of --train has {there} labelled "
        f"picture{'s' * (there > 1)}, fewer than {shots}{held}{others}; label more of it, leave "
        f"the class out, or take --protocols {there}-shot"
    )
