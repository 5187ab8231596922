"""The labels of a training and a test set, in one numbering."""

import torch
from torch import Tensor

from wessl.data.cache.cache import PictureCache
from wessl.errors import UserError


def common_labels(train: PictureCache, test: PictureCache) -> tuple[Tensor, Tensor]:
    """Labels of both, in the training set's numbers.

    A cache numbers its own classes in order, so a class missing in the test set would shift the
    others: where both name their classes the names decide, and where one alone does nothing can. A
    class that training lacks gets a number after all of training's, which no classifier predicts.
    """
    if train.labels is None or test.labels is None:
        side = "training" if train.labels is None else "test"
        raise UserError(f"the {side} pictures have no labels; give folders named by class")
    if (train.classes is None) != (test.classes is None):
        named, other = ("training", "test") if test.classes is None else ("test", "training")
        raise UserError(
            f"the {named} pictures' classes have names and the {other} pictures' only numbers, so "
            "nobody knows which are the same; give both names, or both the same numbers"
        )
    if train.classes is None or test.classes is None or train.classes == test.classes:
        return train.labels, test.labels
    number = {name: i for i, name in enumerate(train.classes)}
    for name in test.classes:
        number.setdefault(name, len(number))
    return train.labels, torch.tensor([number[name] for name in test.classes])[test.labels.long()]
