"""The classifier of a few labels against the few-shot protocol and scikit-learn."""

import dataclasses

import numpy as np
import pytest
import torch
from real_digits import digits
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from wessl.data.labelled.splits import few_shot_draws
from wessl.evaluate.protocols.few_shot import few_shot
from wessl.export.calibration import SPREAD, measure
from wessl.export.classify import Estimate, fit, unit
from wessl.export.worth import margins, typical, undecided


@pytest.fixture(scope="module")
def sets():
    return digits()


@pytest.mark.parametrize("shots", [1, 2, 5])
def test_the_same_labels_give_what_the_few_shot_protocol_gives(sets, shots):
    train, test = sets
    expected = few_shot(train, test, shots, draws=4)
    for i, draw in enumerate(few_shot_draws(train.labels, shots, 4)):
        found = fit(train.features[draw], train.labels[draw])
        assert found.strength == expected["strength"][i]
        guessed = found.probabilities(test.features).argmax(1)
        assert (guessed == expected["predicted"][i]).double().mean() > 0.995  # but for rounding
        right = (guessed == test.labels).double().mean().item()
        assert right == pytest.approx(expected["per_draw"][i], abs=2 / len(test))


def test_probabilities_are_those_of_scikit_learn_at_the_temperature(sets):
    train, test = sets
    (draw,) = few_shot_draws(train.labels, 5, 1)
    x, y = unit(train.features[draw]), train.labels[draw]
    found = fit(train.features[draw], y)
    oracle = LogisticRegression(C=1 / (found.strength * len(draw)), tol=1e-8, max_iter=10_000)
    oracle.fit(x.double().numpy(), y.numpy())
    logits = torch.from_numpy(oracle.decision_function(unit(test.features).double().numpy()))
    expected = (logits / found.temperature).softmax(1)
    torch.testing.assert_close(
        found.probabilities(test.features).double(), expected, atol=0.02, rtol=0
    )


def test_the_estimate_counts_right_answers_about_labels_that_were_held_out(sets):
    train, _ = sets
    (draw,) = few_shot_draws(train.labels, 4, 1)
    x, y = unit(train.features[draw]), train.labels[draw]
    found = fit(train.features[draw], y)
    right = 0
    for fold in range(4):  # a class's first picture is held out first, and so on
        held = torch.cat([(y == c).nonzero()[fold] for c in range(10)])
        kept = torch.tensor([i for i in range(40) if i not in held.tolist()])
        oracle = LogisticRegression(C=1 / (found.strength * 30), tol=1e-6, max_iter=5000)
        oracle.fit(x[kept].double().numpy(), y[kept].numpy())
        right += (oracle.predict(x[held].double().numpy()) == y[held].numpy()).sum()
    assert (found.estimate.of, found.estimate.folds) == (40, 4)
    assert abs(found.estimate.right - right) <= 1


def test_one_label_a_class_is_enough_to_guess_and_not_to_judge(sets):
    train, test = sets
    (draw,) = few_shot_draws(train.labels, 1, 1)
    found = fit(train.features[draw], train.labels[draw])
    assert (found.estimate, found.calibration, found.temperature) == (None, None, 1.0)
    assert (found.probabilities(test.features).argmax(1) == test.labels).double().mean() > 0.5


def test_a_class_with_one_label_among_others_with_more_is_guessed_too(sets):
    train, test = sets
    (draw,) = few_shot_draws(train.labels, 4, 1)
    of_three = (train.labels[draw] == 3).nonzero().flatten()
    some = torch.tensor([int(i) for k, i in enumerate(draw) if k not in of_three[1:].tolist()])
    found = fit(train.features[some], train.labels[some])
    assert found.estimate.of == 36
    assert (found.probabilities(test.features).argmax(1) == 3).any()
    two = torch.cat([draw[train.labels[draw] == c][: 2 if c < 3 else 1] for c in range(10)])
    unlike = fit(train.features[two], train.labels[two])  # most classes have one
    assert unlike.estimate is None
    assert (unlike.probabilities(test.features).argmax(1) == test.labels).double().mean() > 0.5


def test_calibration_brings_confidence_nearer_to_the_truth(sets):
    train, test = sets
    raw, calibrated = [], []
    for draw in few_shot_draws(train.labels, 10, 8):
        found = fit(train.features[draw], train.labels[draw])
        assert found.calibration is not None
        for into, one in ((raw, dataclasses.replace(found, temperature=1.0)), (calibrated, found)):
            p = one.probabilities(test.features)
            into.append(-p[torch.arange(len(test)), test.labels].log().mean().item())
    assert np.mean(calibrated) < np.mean(raw)


def test_what_confidences_are_worth_is_measured_on_labels_their_temperature_did_not_see():
    rng = torch.Generator().manual_seed(3)
    truth, fold = torch.randint(0, 4, (60,), generator=rng), torch.arange(60) % 3
    logits = 2 * torch.randn(60, 4, generator=rng).double()
    logits[torch.arange(60), truth] += 3
    found = measure(logits, truth, fold)
    sure, right = np.empty(60), np.empty(60)
    for own in range(3):
        others = fold != own

        def cost(t, others=others):
            p = softmax(logits[others].numpy() / np.exp(t), axis=1)
            likely = p[np.arange(40), truth[others].numpy()]
            return -np.log(likely).sum() + t**2 / (2 * SPREAD**2)

        best = min(np.linspace(-1, 3, 4001), key=cost)
        p = softmax(logits[fold == own].numpy() / np.exp(best), axis=1)
        sure[fold == own], right[fold == own] = p.max(1), p.argmax(1) == truth[fold == own].numpy()
    order = np.argsort(-sure)
    for half, rows in ((found.surer, order[:30]), (found.rest, order[30:])):
        assert half.of == 30
        assert half.expected == pytest.approx(sure[rows].mean(), abs=2e-3)
        assert half.right == pytest.approx(right[rows].mean())
        scatter = 1.96 * np.sqrt((sure[rows] * (1 - sure[rows])).sum()) / 30 + 0.5 / 30
        assert half.chance == pytest.approx(scatter, abs=2e-3)


def test_honest_confidences_are_rarely_called_wrong_and_wrong_ones_are():
    rng = np.random.default_rng(0)
    called = []
    for _ in range(60):
        p = rng.dirichlet([0.5] * 5, 40)
        truth = torch.tensor([rng.choice(5, p=row) for row in p])
        found = measure(torch.tensor(np.log(p)), truth, torch.arange(40) % 5)
        called.append(bool(found.surer.too_sure or found.rest.too_sure))
    assert np.mean(called) < 0.15
    turned = torch.full((40, 2), 0.0, dtype=torch.float64)
    turned[:20, 0], turned[20:, 0] = 3.0, 1.0  # the surer half is right every other time
    truth = torch.cat([torch.arange(20) % 2, torch.zeros(20, dtype=torch.long)])
    found = measure(turned, truth, torch.arange(40) % 4)
    assert (found.surer.right, found.rest.right) == (0.5, 1.0)
    assert found.surer.too_sure > 0.2
    assert not found.tells


def test_wrong_labels_make_it_less_sure(sets):
    train, test = sets
    (draw,) = few_shot_draws(train.labels, 10, 1)
    y = train.labels[draw].clone()
    y[::3] = torch.randint(0, 10, (len(y[::3]),), generator=torch.Generator().manual_seed(0))
    clean, noisy = (fit(train.features[draw], labels) for labels in (train.labels[draw], y))
    sure = [one.probabilities(test.features).amax(1).mean() for one in (clean, noisy)]
    assert sure[1] < sure[0]
    assert noisy.estimate.accuracy < clean.estimate.accuracy


def test_the_interval_holds_the_truth_of_most_draws(sets):
    train, test = sets
    held = []
    for draw in few_shot_draws(train.labels, 3, 20):
        found = fit(train.features[draw], train.labels[draw])
        truth = (found.probabilities(test.features).argmax(1) == test.labels).double().mean()
        low, high = found.estimate.interval
        held.append(low <= truth <= high)
    assert np.mean(held) >= 0.8


def test_two_classes_are_enough():
    rng = torch.Generator().manual_seed(0)
    x = torch.randn(12, 5, generator=rng) + 3 * torch.eye(5)[torch.arange(12) % 2]
    found = fit(x, torch.arange(12) % 2)
    assert found.probabilities(x).shape == (12, 2)
    assert found.estimate.in_words().startswith("about ")


def test_an_estimate_is_told_in_hundreds():
    assert Estimate(3, 4, (0.21, 0.99), 2).in_words() == "about 75 of 100 right, between 21 and 99"


def test_undecided_pictures_are_hard_and_unlike_each_other():
    rng = np.random.default_rng(0)
    centres = np.eye(6)[np.arange(60) % 3] + 0.01 * rng.normal(size=(60, 6))
    features = torch.from_numpy(centres).float()
    margin = torch.linspace(0.5, 1, 60)
    margin[torch.arange(0, 60, 3)] *= 0.5  # one of three groups is the hardest
    chosen = undecided(lambda rows: features[rows], margin, 3)
    assert sorted(chosen % 3) == [0, 1, 2]
    assert chosen[0] == 0
    for group in range(3):
        own = [i for i in range(60) if i % 3 == group]
        assert min(own, key=lambda i: margin[i]) in chosen
    alike = undecided(lambda rows: torch.ones(len(rows), 2), margin, 3)
    assert alike.tolist() == [0]  # copies of one picture need one label
    assert len(undecided(lambda rows: features[rows], margin[:2], 5)) == 2
    assert len(undecided(lambda rows: features[rows], margin, 0)) == 0


def test_typical_pictures_stand_for_large_groups_without_a_label():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(4), [30, 20, 10, 5])
    features = torch.from_numpy(np.eye(6)[group] + 0.02 * rng.normal(size=(65, 6))).float()
    labelled = torch.eye(6)[[0]]  # one like the largest group
    chosen = typical(lambda rows: features[rows], 65, labelled, 3)
    assert group[chosen].tolist() == [1, 2, 3]
    for row in chosen:
        own = np.flatnonzero(group == group[row])
        centre = features[own].mean(0)
        assert row == own[(features[own] - centre).norm(dim=1).argmin()]
    assert len(typical(lambda rows: features[rows], 2, labelled, 9)) <= 2
    assert len(typical(lambda rows: features[rows], 65, labelled, 0)) == 0


def test_a_margin_is_how_far_the_first_is_ahead():
    p = torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.8, 0.1]])
    torch.testing.assert_close(margins(p), torch.tensor([0.2, 0.7]))
