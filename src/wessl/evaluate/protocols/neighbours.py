"""The paper's k-NN protocol: every training label votes; k is chosen from the paper's five."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from wessl.data.labelled.splits import seeded
from wessl.evaluate.classifiers.knn import check_labelled, knn, neighbours, votes
from wessl.evaluate.protocol import Labelled, Result, scored
from wessl.evaluate.settings import check_choices

NEIGHBOURS = (5, 10, 20, 50, 100)
ASKED = 10_000
"""At most so many training pictures choose k."""


def nearest_neighbours(
    train: Labelled,
    test: Labelled,
    k: int | Sequence[int] = NEIGHBOURS,
    select: Literal["val", "test"] = "val",
    temperature: float = 0.07,
    seed: int = 0,
    device: str | torch.device | None = None,
) -> Result:
    """Accuracy of the weighted vote of the nearest training pictures.

    `select="val"` chooses k on the training pictures, or 10,000 of them, each named by all the
    others; `select="test"` on the test pictures, as the paper reads. Then all training pictures
    vote. Of equally good k the first counts. One k is not chosen, and where every class has one
    picture the middle of the sweep is taken.

    >>> train = Labelled(torch.eye(4), torch.tensor([0, 0, 1, 1]))
    >>> nearest_neighbours(train, train, k=1)["accuracy"]
    1.0
    """
    check_choices(select=select)
    check_labelled(train.features, train.labels, "train features")
    check_labelled(test.features, test.labels, "test features")
    place = train.features.device if device is None else torch.device(device)
    ks = [k] if isinstance(k, int) else list(k)
    x, z, labels = train.features.to(place), test.features.to(place), train.labels.to(place)
    predicted = knn(x, labels, z, ks, temperature)
    every = _accuracies(predicted, test.labels)
    best, how = ks[len(ks) // 2], "given beforehand"
    if len(ks) > 1 and select == "test":
        best, how = max(ks, key=every.__getitem__), "on the test pictures (optimistic)"
    elif len(ks) > 1 and int(labels.unique(return_counts=True)[1].max()) == 1:
        how = "as the middle of the sweep: one label a class leaves none to hold out"
    elif len(ks) > 1:
        scores = _leave_one_out(x, labels, ks, temperature, seed)
        best = max(ks, key=scores.__getitem__)
        asked = min(len(train), ASKED)
        how = f"by leave-one-out on {asked} training pictures: each named by all others"
    protocol = dict(
        name="k-NN",
        neighbours=ks,
        neighbours_chosen=how,
        similarity="cosine",
        votes=f"exp(similarity / {temperature})",
        seed=seed,
        train_pictures=len(train),
        classes=len(labels.unique()),
    )
    result = scored(predicted[best][None], test.labels, protocol) | dict(k=best)
    if select == "test":
        result["sweep"] = {str(n): accuracy for n, accuracy in every.items()}
    return result


def _leave_one_out(
    x: Tensor, labels: Tensor, ks: list[int], temperature: float, seed: int
) -> dict[int, float]:
    """The share of pictures that all others name rightly; one search, and no copy of `x`."""
    order = torch.randperm(len(x), generator=seeded(seed, "choose k"))[:ASKED]
    asked = order.sort().values.to(x.device)
    similarity, index = neighbours(x, max(ks), asked)
    return _accuracies(votes(similarity, index, labels, ks, temperature), labels[asked])


def _accuracies(predicted: dict[int, Tensor], labels: Tensor) -> dict[int, float]:
    right = {n: guess.to(labels.device) == labels for n, guess in predicted.items()}
    return {n: float(hits.double().mean()) for n, hits in right.items()}
