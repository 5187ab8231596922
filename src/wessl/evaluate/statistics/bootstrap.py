"""How far an accuracy, or a difference of two, might be off: other test pictures, other labels.

Both are samples, and an interval counts both. Test pictures are resampled with replacement. Draws
of labelled pictures are few, often three: intervals from resampling three numbers held a known
truth in as few as 79 % of simulated cases, so the error of their mean is drawn from Student's t
instead. A difference is taken picture by picture and draw by draw before anything is resampled:
what both encoders find hard cancels.

Draws from few labelled pictures overlap, and however many there are they tell little of labels one
does not have. A draw that takes a share `f` of the labels varies, to first order, by `1 - f` of
what a draw of other labels would, and the mean of all draws by `f` of it: together `1/g + f/(1-f)`
of the draws' variance. On raw digits, two labels a class drawn from three, `1/g` alone held the
truth in 39 of 60 cases, this in 58.

Resampling alone knows no picture it has not seen: 20 right of 20 would give 100 % ± 0. Four
pictures are therefore added, two right and two wrong (Agresti and Coull 1998), and to a difference
one for either side and two for neither (much as Bonett and Price 2012); as a difference's mean over
`g` draws is smaller, these count 1/sqrt(g). They matter where test pictures are few or nearly all
alike. Not counted: another seed of the pretraining, and that the best of several strengths was
picked on the test pictures.

Where every class counts the same however few pictures it has, pictures are resampled within their
class, as the classes would be the same in another test set.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

REPLICATES = 2000
LEVEL = 0.95

Interval = tuple[float, float]
Numbers = NDArray[np.int64]


def accuracy_interval(correct_gn: Tensor, seed: int = 0, taken: float = 0.0) -> Interval:
    """The 95 % interval of the mean accuracy of draws' correct answers `(draws, pictures)`.

    `taken` is the share of the labelled pictures that went into each draw.

    >>> import torch
    >>> low, high = accuracy_interval(torch.tensor([[True] * 20]))
    >>> low < 0.9, high
    (True, 1.0)
    """
    return _interval(_numbers(correct_gn), np.array([1, 1, 0, 0]), 0, seed, taken)


def difference_interval(
    correct_gn: Tensor, other_gn: Tensor, seed: int = 0, taken: float = 0.0
) -> Interval:
    """The same of the difference of two encoders on the same draws and pictures."""
    added = np.array([1, -1, 0, 0]) / np.sqrt(len(correct_gn))
    return _interval(_numbers(correct_gn) - _numbers(other_gn), added, -1, seed, taken)


def class_mean_interval(correct_n: Tensor, labels_n: Tensor, seed: int = 0) -> Interval:
    """The 95 % interval of the mean over classes of each class's share of correct answers.

    A class of few pictures resampled with replacement varies too little, by `(n - 1) / n`, which
    is made good. A class of a single picture has a share of 0 or 1: how far that is off is taken
    from all pictures together, and turned round, as the truth lies on its other side. The four
    added pictures are drawn as from a set of as many pictures that count alike.

    >>> import torch
    >>> labels = torch.arange(10).repeat(30)
    >>> correct = torch.rand(300, generator=torch.Generator().manual_seed(0)) < 0.8
    >>> ends = zip(class_mean_interval(correct, labels), accuracy_interval(correct[None]))
    >>> all(abs(one - other) < 0.01 for one, other in ends)  # classes of one size
    True
    """
    labels, right = labels_n.cpu().numpy(), correct_n.cpu().numpy().astype(np.int64)
    number = np.unique(labels, return_inverse=True)[1]
    counts = np.bincount(number)
    shares = np.bincount(number, right) / counts
    rng = np.random.default_rng([seed, len(counts), len(right)])
    alone = counts == 1
    drawn_from = np.where(alone, right.mean(), shares)
    drawn = rng.binomial(counts, drawn_from, (REPLICATES, len(counts))) / counts
    wider = np.where(alone, -1.0, np.sqrt(counts / np.maximum(1, counts - 1)))
    found = shares.mean()
    means = found + ((drawn - drawn_from) * wider).mean(1)
    n = round(len(counts) ** 2 / (1 / counts).sum()) + 4
    yes, no = rng.multinomial(n, [2 / n, 2 / n, 1 - 4 / n], REPLICATES)[:, :2].T
    means = ((n - yes - no) * means + yes) / n
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(max(min(low, found), 0)), float(min(max(high, found), 1))


def class_mean_difference_interval(
    correct_n: Tensor, other_n: Tensor, labels_n: Tensor, seed: int = 0
) -> Interval:
    """The same of the difference of two encoders on the same pictures.

    >>> import torch
    >>> labels = torch.arange(10).repeat(30)
    >>> one, other = torch.rand(2, 300, generator=torch.Generator().manual_seed(0)) < 0.8
    >>> found = class_mean_difference_interval(one, other, labels)
    >>> ends = zip(found, difference_interval(one[None], other[None]))
    >>> all(abs(a - b) < 0.01 for a, b in ends)  # classes of one size
    True
    """
    gain = correct_n.cpu().numpy().astype(np.int64) - other_n.cpu().numpy().astype(np.int64)
    number = np.unique(labels_n.cpu().numpy(), return_inverse=True)[1]
    counts = np.bincount(number)
    rng = np.random.default_rng([seed, len(counts), len(gain)])
    shares = np.stack([np.bincount(number, gain == sign) / counts for sign in (1, -1, 0)], 1)
    everywhere = np.array([(gain == sign).mean() for sign in (1, -1, 0)])
    alone = counts == 1
    drawn_from = np.where(alone[:, None], everywhere, shares)
    drawn = rng.multinomial(counts, drawn_from, (REPLICATES, len(counts))) / counts[:, None]
    off = (drawn - drawn_from)[..., 0] - (drawn - drawn_from)[..., 1]
    wider = np.where(alone, -1.0, np.sqrt(counts / np.maximum(1, counts - 1)))
    found = float((shares[:, 0] - shares[:, 1]).mean())
    means = found + (off * wider).mean(1)
    n = round(len(counts) ** 2 / (1 / counts).sum()) + 4
    up, down, neither = rng.multinomial(n, [1 / n, 1 / n, 2 / n, 1 - 4 / n], REPLICATES)[:, :3].T
    means = ((n - up - down - neither) * means + up - down) / n
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(max(min(low, found), -1)), float(min(max(high, found), 1))


def _numbers(correct_gn: Tensor) -> Numbers:
    return correct_gn.cpu().numpy().astype(np.int64)


def _interval(
    values_gn: Numbers, added: NDArray[Any], least: float, seed: int, taken: float
) -> Interval:
    draws, n = values_gn.shape
    rng = np.random.default_rng([seed, draws, n])
    # Pictures of one value are alike, so how many of each value are drawn is all that counts.
    pictures = np.concatenate([values_gn.sum(0) / draws, added])
    distinct, counts = np.unique(pictures, return_counts=True)
    drawn = rng.multinomial(len(pictures), counts / len(pictures), REPLICATES)
    means = drawn @ distinct / len(pictures)
    if draws > 1:
        overlap = taken / (1 - taken) if taken < 1 else 0.0  # draws of all labels do not differ
        error = values_gn.mean(1).std(ddof=1) * np.sqrt(1 / draws + overlap)
        means = means + error * rng.standard_t(draws - 1, REPLICATES)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    found = values_gn.mean()  # the added pictures may not push it out
    return float(max(min(low, found), least)), float(min(max(high, found), 1))
