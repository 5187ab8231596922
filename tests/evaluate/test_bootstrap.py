"""Intervals against plain loops, and how often they hold a truth that is known."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from wessl.evaluate.statistics.bootstrap import (
    accuracy_interval,
    class_mean_difference_interval,
    class_mean_interval,
    difference_interval,
)


def test_one_draw_is_a_plain_loop_that_resamples_pictures_and_the_four_added_ones():
    correct = torch.rand(1, 150, generator=torch.Generator().manual_seed(0)) < 0.8
    pictures = np.array([*correct[0].tolist(), True, True, False, False])
    rng = np.random.default_rng(1)
    means = [rng.choice(pictures, len(pictures)).mean() for _ in range(20_000)]
    expected = np.quantile(means, [0.025, 0.975])
    np.testing.assert_allclose(accuracy_interval(correct), expected, atol=0.008)


def test_a_difference_is_a_plain_loop_over_pairs():
    generator = torch.Generator().manual_seed(0)
    ours, theirs = (torch.rand(1, 150, generator=generator) < p for p in (0.8, 0.7))
    pairs = [(bool(a), bool(b)) for a, b in zip(ours[0], theirs[0], strict=True)]
    pairs += [(True, False), (False, True), (True, True), (False, False)]
    rng = np.random.default_rng(1)
    gains = []
    for _ in range(20_000):
        drawn = [pairs[i] for i in rng.integers(0, len(pairs), len(pairs))]
        gains.append(np.mean([a - b for a, b in drawn]))
    expected = np.quantile(gains, [0.025, 0.975])
    np.testing.assert_allclose(difference_interval(ours, theirs), expected, atol=0.012)


def test_draws_alone_give_students_interval():
    """Pictures that are all alike within a draw leave only the draws to differ."""
    correct = torch.zeros(6, 100_000, dtype=torch.bool)
    shares = [0.50, 0.52, 0.47, 0.55, 0.51, 0.49]
    for row, share in zip(correct, shares, strict=True):
        row[torch.randperm(100_000, generator=torch.Generator().manual_seed(0))] = (
            torch.arange(100_000) < share * 100_000
        )
    low, high = accuracy_interval(correct)
    expected = stats.t.interval(0.95, 5, np.mean(shares), stats.sem(shares))
    np.testing.assert_allclose((low, high), expected, atol=0.004)


@pytest.mark.parametrize("pictures", [20, 100])
@pytest.mark.parametrize("truth", [0.5, 0.9, 0.98])
def test_an_interval_holds_a_known_binomial_as_often_as_it_says(pictures, truth):
    generator = torch.Generator().manual_seed(0)
    holds = 0
    for i in range(400):
        correct = torch.rand(1, pictures, generator=generator) < truth
        low, high = accuracy_interval(correct, seed=i)
        holds += low <= truth <= high
    assert holds / 400 >= 0.90  # resampling alone: 0.31 for 20 pictures and 0.98


@pytest.mark.parametrize("draws", [3, 30])
def test_an_interval_holds_the_truth_over_draws_and_pictures(draws):
    """Draws and pictures that are both easy or hard; three draws resampled hold it in 80 %."""
    rng = np.random.default_rng(0)

    def answers(g, n, spread=1.0):
        ease = 1 + spread * rng.normal(size=(g, 1)) + 2 * rng.normal(size=(1, n))
        return rng.random((g, n)) < 1 / (1 + np.exp(-ease))

    truth = answers(2000, 2000).mean()
    found = [accuracy_interval(torch.from_numpy(answers(draws, 200)), i) for i in range(200)]
    assert np.mean([low <= truth <= high for low, high in found]) >= 0.90


@pytest.mark.parametrize(("shots", "pool"), [(2, 3), (5, 20)])
def test_draws_from_few_labels_do_not_make_certain_of_labels_one_does_not_have(shots, pool):
    """A draw is as good as its labels are on average; 30 draws share the few labels there are."""
    rng = np.random.default_rng(0)
    truth, pictures, classes = 0.75, 1000, 10

    def answers():
        good = rng.normal(size=(classes, pool))
        draws = [
            np.mean([rng.choice(own, shots, replace=False) for own in good]) for _ in range(30)
        ]
        shares = truth + 0.2 * np.array(draws)[:, None]
        return torch.from_numpy(rng.random((30, pictures)) < shares)

    found = [answers() for _ in range(100)]

    def held(taken):
        ends = [accuracy_interval(correct, i, taken) for i, correct in enumerate(found)]
        return np.mean([low <= truth <= high for low, high in ends])

    assert held(shots / pool) >= 0.90
    assert held(0.0) < 0.85  # as if every draw had labels of its own


def test_a_paired_difference_is_narrower_than_the_two_accuracies():
    generator = torch.Generator().manual_seed(0)
    ours = torch.rand(5, 400, generator=generator) < torch.linspace(0.2, 1, 400)
    theirs = ours & (torch.rand(5, 400, generator=generator) < 0.95)
    low, high = difference_interval(ours, theirs)
    ends = accuracy_interval(ours), accuracy_interval(theirs)
    assert high - low < min(b - a for a, b in ends)
    assert low > 0  # though the two accuracies' own intervals overlap
    assert ends[0][0] < ends[1][1]


def test_few_pictures_never_give_certainty():
    right = torch.ones(1, 1, dtype=torch.bool)
    low, high = accuracy_interval(right)
    assert low < 0.5
    assert high == 1
    low, high = difference_interval(right, ~right)
    assert low < 0 < high
    low, high = difference_interval(right.expand(3, 1), right.expand(3, 1))
    assert low < 0 < high


@given(st.integers(1, 4), st.integers(1, 30), st.integers(0, 1000))
def test_an_interval_holds_its_own_number_and_stays_within_bounds(draws, pictures, seed):
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.rand(draws, pictures, generator=generator) < 0.7 for _ in range(2))
    low, high = accuracy_interval(a, seed)
    assert 0 <= low <= a.double().mean() + 1e-9
    assert a.double().mean() - 1e-9 <= high <= 1
    low, high = difference_interval(a, b, seed)
    gain = (a.double() - b.double()).mean()
    assert -1 <= low <= gain + 1e-9
    assert gain - 1e-9 <= high <= 1
    assert difference_interval(a, b, seed) == (low, high)


def many_classes(rng, ease):
    """Of classes of 1 to 40 pictures, labels and right answers; classes differ in how hard they
    are."""
    labels = np.repeat(np.arange(len(ease)), 1 + np.arange(len(ease)) * 7 % 40)
    return torch.from_numpy(labels), torch.from_numpy(rng.random(len(labels)) < ease[labels])


def test_a_mean_over_classes_is_a_plain_loop_that_resamples_within_each_class():
    rng = np.random.default_rng(0)
    labels, correct = many_classes(rng, rng.beta(8, 2, 30))
    own = [correct[labels == c].numpy() for c in range(30)]
    own = [x for x in own if len(x) > 8]  # enough for plain resampling to be right
    labels = torch.from_numpy(np.repeat(np.arange(len(own)), [len(x) for x in own]))
    means = [np.mean([rng.choice(x, len(x)).mean() for x in own]) for _ in range(4000)]
    found = class_mean_interval(torch.from_numpy(np.concatenate(own)), labels)
    np.testing.assert_allclose(found, np.quantile(means, [0.025, 0.975]), atol=0.012)


@pytest.mark.parametrize("classes", [10, 50])
@pytest.mark.parametrize("quality", [1, 8, 60])
def test_the_interval_of_a_mean_over_classes_holds_the_truth(quality, classes):
    """Right answers by class from half of the pictures to nearly all."""
    rng = np.random.default_rng(quality)
    ease = rng.beta(quality, 1, classes)
    found = [class_mean_interval(*many_classes(rng, ease)[::-1], i) for i in range(300)]
    holds = np.mean([low <= ease.mean() <= high for low, high in found])
    assert holds >= 0.90
    assert np.mean([high - low for low, high in found]) < 1 / classes**0.5  # and says something


def test_a_large_class_does_not_decide_over_the_mean_of_all():
    labels = torch.tensor([0] * 10_000 + [1] * 10)
    correct = torch.ones(10_010, dtype=torch.bool)
    correct[-5:] = False
    low, high = class_mean_interval(correct, labels)
    assert low < 0.65 < 0.75 < 0.85 < high  # ten pictures are half of it
    narrow = accuracy_interval(correct[None])
    assert narrow[1] - narrow[0] < 0.002


def test_a_difference_of_means_over_classes_is_a_plain_loop_over_pairs_within_each_class():
    rng = np.random.default_rng(0)
    labels = torch.arange(12).repeat_interleave(torch.arange(20, 44, 2))
    ours, theirs = (torch.from_numpy(rng.random(len(labels)) < p) for p in (0.8, 0.7))
    gain = (ours.int() - theirs.int()).numpy()
    own = [gain[labels.numpy() == c] for c in range(12)]
    found = np.mean([pairs.mean() for pairs in own])
    means = [np.mean([rng.choice(x, len(x)).mean() for x in own]) for _ in range(4000)]
    expected = np.quantile(means, [0.025, 0.975])
    ends = class_mean_difference_interval(ours, theirs, labels)
    np.testing.assert_allclose(ends, expected, atol=0.01)
    assert ends[0] < found < ends[1]
    back = class_mean_difference_interval(theirs, ours, labels)
    np.testing.assert_allclose(back, (-ends[1], -ends[0]), atol=0.01)


@pytest.mark.parametrize("ease", [0.6, 0.95])
def test_a_difference_of_means_over_classes_of_any_size_holds_the_truth(ease):
    rng, held = np.random.default_rng(0), 0
    for i in range(300):
        hard = rng.beta(10 * ease, 10 * (1 - ease), 30)
        labels = np.repeat(np.arange(30), 1 + np.arange(30) * 7 % 40)
        luck = rng.random(len(labels))  # shared, so that the two answers hang together
        ours, theirs = (torch.from_numpy(luck < p[labels]) for p in (hard, 0.9 * hard))
        low, high = class_mean_difference_interval(ours, theirs, torch.from_numpy(labels), i)
        held += low <= 0.1 * hard.mean() <= high
    assert held / 300 >= 0.90
