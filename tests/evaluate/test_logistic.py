"""Logistic regression against scikit-learn's optimum on real features."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from real_features import features
from sklearn import datasets
from sklearn.linear_model import LogisticRegression
from torch import Tensor

import wessl.evaluate.classifiers.logistic as module
from wessl.evaluate.classifiers.logistic import (
    FEW_SHOT_STRENGTHS,
    TRANSFER_STRENGTHS,
    LogisticFit,
    logistic,
)

REAL = {
    "digits": datasets.load_digits,
    "wine": datasets.load_wine,
    "breast cancer": datasets.load_breast_cancer,
    "iris": datasets.load_iris,
}


def real_features(name: str, standard: bool) -> tuple[Tensor, Tensor]:
    if name == "encoded digits":
        sides = features(name)
        x = torch.cat([side.features for side in sides]).double().numpy()
        y = torch.cat([side.labels for side in sides]).numpy()
    else:
        x, y = REAL[name](return_X_y=True)
    if standard:
        x = (x - x.mean(0)) / np.maximum(x.std(0), 1e-6)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


def clustered(classes: int, shots: int, d: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centers = torch.randn(classes, d, generator=torch.Generator().manual_seed(99))
    y = torch.arange(classes).repeat(shots)
    return centers[y] + torch.randn(len(y), d, generator=generator), y


def objective(
    weight: Tensor,
    bias: Tensor,
    x: Tensor,
    y: Tensor,
    strength: float,
    center: Tensor | float = 0.0,
) -> float:
    """The objective in float64 from the weights as they are kept, independent of the solver."""
    weight = weight.double()
    loss = torch.nn.functional.cross_entropy((x.double() - center) @ weight + bias.double(), y)
    if weight.shape[1] == 2:
        weight = weight[:, 1] - weight[:, 0]
    return (loss + strength / 2 * weight.square().sum()).item()


def scikit(x: Tensor, y: Tensor, strength: float) -> tuple[float, LogisticRegression]:
    """scikit-learn's optimum, in float64 by Newton's method, and the model that attains it."""
    model = LogisticRegression(
        C=1 / (strength * len(y)), tol=1e-9, max_iter=1000, solver="newton-cholesky"
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its line search stops at the last digit; 1-shot is meant
        model.fit(x.double().numpy(), y.numpy())
    weight, bias = torch.tensor(model.coef_).T, torch.tensor(model.intercept_)
    if len(model.classes_) == 2:
        weight, bias = torch.cat([-weight, weight], dim=1) / 2, torch.cat([-bias, bias]) / 2
    return objective(weight, bias, x, y, strength), model


def assert_optimal(
    x: Tensor,
    y: Tensor,
    strengths: tuple[float, ...],
    tolerance: float,
    test: Tensor,
    truth: Tensor,
    told: float | None = None,
) -> None:
    """The weights are within `tolerance` of the optimum, what is told of them within `told`."""
    fit = logistic(x, y, strengths)
    assert fit.converged.all()
    predicted = fit.predict(test)
    for i, strength in enumerate(strengths):
        best, model = scikit(x, y, strength)
        ours = objective(fit.weight[i], fit.bias[i], x, y, strength, fit.center.double())
        assert ours == pytest.approx(best, rel=tolerance)
        assert fit.objective[i].item() == pytest.approx(best, rel=told or tolerance)
        theirs = torch.tensor(model.predict(test.double().numpy()))
        right, expected = (predicted[i] == truth).sum(), (theirs == truth).sum()
        assert abs(right - expected) <= max(1, len(truth) / 1000)


@pytest.mark.parametrize("standard", [True, False], ids=["standardised", "raw"])
@pytest.mark.parametrize("name", [*REAL, "encoded digits"])
def test_float32_reaches_scikit_learns_optimum_on_real_features(name, standard):
    x, y = real_features(name, standard)
    # From strength to strength float32's logits drift, and with them the value that is told.
    told = 3e-4 if name == "encoded digits" else None
    assert_optimal(x[::2], y[::2], (1e-4, 1e-2, 1.0, 1e3), 5e-5, x[1::2], y[1::2], told)


@pytest.mark.parametrize("standard", [True, False], ids=["standardised", "raw"])
@pytest.mark.parametrize("name", ["wine", "breast cancer", "iris"])
def test_small_strengths_reach_the_optimum_in_float64(name, standard):
    x, y = real_features(name, standard)
    assert_optimal(x[::2], y[::2], (1e-6, 1e-5), 1e-6, x[1::2], y[1::2])


def test_one_shot_with_many_classes_reaches_the_optimum():
    x, y = clustered(20, 1, 40)
    test, truth = clustered(20, 10, 40, seed=1)
    assert_optimal(x, y, (1e-4, 1e-2, 1.0), 1e-5, test, truth)


def test_the_whole_sweeps_converge_in_few_steps():
    x, y = real_features("digits", standard=False)
    assert len(FEW_SHOT_STRENGTHS) == 11
    assert len(TRANSFER_STRENGTHS) == 18
    fit = logistic(x[:500], y[:500], TRANSFER_STRENGTHS)
    assert fit.converged.all()
    assert fit.iterations.max() <= 40
    assert (fit.objective.diff() > 0).all()  # more penalty, higher optimum


def test_two_classes_have_scikit_learns_single_weight_vector():
    x, y = real_features("breast cancer", standard=True)
    fit = logistic(x, y, [0.01])
    _, model = scikit(x, y, 0.01)
    difference = fit.weight[0, :, 1] - fit.weight[0, :, 0]
    off = np.linalg.norm(difference.numpy() - model.coef_[0])
    assert off < 1e-2 * np.linalg.norm(model.coef_[0])


def test_draws_of_any_length_and_classes_equal_each_fit_alone():
    x, y = clustered(6, 8, 10)
    draws = [range(12), torch.arange(30), (y < 3).nonzero()[:, 0], [3, 4, 9, 10], range(6, 18)]
    strengths = (1e-5, 1e-2, 1.0)
    fit = logistic(x, y, strengths, draws)
    predicted = fit.predict(x)
    assert predicted.shape == (5, 3, 48)
    for i, draw in enumerate(draws):
        rows = torch.as_tensor(draw)
        alone = logistic(x[rows], y[rows], strengths)
        assert fit.objective[i].numpy() == pytest.approx(alone.objective.numpy(), rel=1e-5)
        assert torch.equal(predicted[i], alone.predict(x))


def test_a_class_absent_from_a_draw_is_never_predicted():
    x, y = clustered(5, 6, 8)
    draws = [(y != 2).nonzero()[:, 0], torch.arange(30)]
    predicted = logistic(x, y, FEW_SHOT_STRENGTHS, draws).predict(x)
    assert not (predicted[0] == 2).any()
    assert (predicted[1] == 2).any()


@settings(max_examples=25, deadline=None)
@given(
    n=st.integers(3, 40),
    d=st.integers(1, 30),
    classes=st.integers(3, 6),
    exponent=st.floats(-3, 2),
    seed=st.integers(0, 10**6),
)
def test_at_the_optimum_residuals_balance_the_penalty_and_sum_to_zero(
    n, d, classes, exponent, seed
):
    generator, strength = torch.Generator().manual_seed(seed), 10.0**exponent
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    y = torch.cat([torch.arange(3), torch.randint(classes, (n - 3,), generator=generator)])
    fit = logistic(x, y, [strength])
    logits = (x - fit.center) @ fit.weight[0] + fit.bias[0]
    residual = logits.softmax(1) - (y[:, None] == fit.classes).double()
    assert fit.converged.all()
    assert residual.mean(0).abs().max() < 1e-6
    assert (x.T @ residual / n + strength * fit.weight[0]).abs().max() < 1e-6


@settings(max_examples=20, deadline=None)
@given(scale=st.floats(-4, 4), shift=st.floats(-100, 100), seed=st.integers(0, 10**6))
def test_units_and_origin_of_the_features_are_free(scale, shift, seed):
    x, y = clustered(4, 5, 12, seed)
    x, unit = x.double(), 10.0**scale
    plain = logistic(x, y, [0.01, 1.0])
    moved = logistic(unit * (x + shift), y, [0.01 * unit**2, 1.0 * unit**2])
    assert moved.objective.numpy() == pytest.approx(plain.objective.numpy(), rel=1e-7)
    assert torch.equal(moved.predict(unit * (x + shift)), plain.predict(x))


def test_columns_that_span_six_orders_of_magnitude_converge():
    x, y = clustered(5, 20, 17)
    x = x * 10.0 ** torch.linspace(-3, 3, 17)
    fit, precise = logistic(x, y, FEW_SHOT_STRENGTHS), logistic(x.double(), y, FEW_SHOT_STRENGTHS)
    assert fit.converged.all()
    assert fit.objective.numpy() == pytest.approx(precise.objective.numpy(), rel=1e-4)


def test_strong_penalties_on_small_features_predict_as_in_float64():
    x, y = clustered(12, 4, 30)
    x, y = 0.02 * x[:41], y[:41]  # some classes tie for the commonest: tiny weights decide
    fit, precise = logistic(x, y, TRANSFER_STRENGTHS), logistic(x.double(), y, TRANSFER_STRENGTHS)
    assert fit.converged.all()
    assert precise.converged.all()
    assert ((fit.predict(x) != precise.predict(x.double())).sum(dim=1) <= 1).all()


def test_pictures_labelled_both_ways_reach_the_optimum():
    x, y = clustered(5, 3, 40)
    x, y = 20 * torch.cat([x, x]), torch.cat([y, (y + 1) % 5])
    assert_optimal(x, y, (1e-6, 1e-4, 1.0), 1e-5, x, torch.zeros_like(y) - 1)


def test_repeating_every_picture_changes_nothing_since_the_loss_is_a_mean():
    x, y = clustered(4, 3, 30)
    once, twice = logistic(x, y, [0.01]), logistic(x, y, [0.01], [[*range(12)] * 3])
    assert twice.objective[0].item() == pytest.approx(once.objective.item(), rel=1e-5)


def test_memory_bounds_change_nothing(monkeypatch):
    x, y = clustered(6, 8, 10)
    draws = [range(i, i + 20) for i in range(5)]
    whole = logistic(x, y, TRANSFER_STRENGTHS, draws)
    monkeypatch.setattr(module, "_BYTES", 200_000)
    parts = logistic(x, y, TRANSFER_STRENGTHS, draws)
    assert parts.objective.numpy() == pytest.approx(whole.objective.numpy(), rel=1e-5)
    assert torch.equal(parts.predict(x), whole.predict(x))


def test_labels_keep_their_values_and_half_precision_is_accepted():
    x, y = clustered(3, 5, 8)
    names = torch.tensor([-40, 7, 1000])
    predicted = logistic(x.bfloat16(), names[y], [1e-3]).predict(x.bfloat16())
    assert torch.equal(predicted[0], names[y])


def test_features_that_never_vary_predict_the_commonest_class():
    y = torch.tensor([3, 3, 5, 3])
    fit = logistic(torch.full((4, 6), 2.5), y, FEW_SHOT_STRENGTHS)
    assert fit.converged.all()
    assert (fit.predict(torch.randn(9, 6)) == 3).all()


def test_too_few_steps_are_reported_and_not_hidden():
    x, y = real_features("iris", standard=False)
    fit = logistic(x, y, [1e-4, 1e5], max_iterations=2)
    assert fit.converged.tolist() == [False, True]
    assert fit.iterations.tolist() == [2, 2]


def test_a_fit_inside_autocast_is_the_same_fit():
    x, y = clustered(4, 5, 12)
    plain = logistic(x, y, [0.01])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside: LogisticFit = logistic(x, y, [0.01])
    assert torch.equal(inside.weight, plain.weight)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": torch.full((4,), 8)}, "labels: only one class, 8; a classifier needs two"),
        ({"draws": [[0, 1, 2], [1, 1]]}, "draw 1: only one class, 1"),
        ({"draws": [[0, 1], []]}, "draw 1: no picture"),
        ({"draws": []}, "draws is an empty list"),
        ({"draws": [[0, 1, 4]]}, "draw 0 names a row outside of 0 to 3"),
        ({"strengths": 0.1}, r"strengths must be a list, as \[0.1\]"),
        ({"features": np.eye(4)}, r"not ndarray: give torch.as_tensor\(features\)"),
        ({"labels": [0, 1, 2, 3]}, "labels must be a torch tensor, not list"),
        ({"strengths": []}, "strengths must be"),
        ({"strengths": [1.0, 0.0]}, "strengths must be"),
        ({"strengths": [float("nan")]}, "strengths must be"),
        ({"labels": torch.arange(3)}, "one integer for each of the 4 rows"),
        ({"features": torch.tensor([[1.0], [2.0], [torch.nan], [3.0]])}, "in 1 rows: 2"),
    ],
)
def test_what_cannot_be_fitted_is_refused_with_its_name(change, message):
    call = {"features": torch.eye(4), "labels": torch.arange(4), "strengths": [1.0]}
    with pytest.raises(ValueError, match=message):
        logistic(**(call | change))


def test_predicting_from_other_features_is_refused():
    fit = logistic(torch.eye(4), torch.arange(4), [1.0])
    with pytest.raises(ValueError, match="fitted on 4 features, asked for 3"):
        fit.predict(torch.eye(3))
    with pytest.raises(ValueError, match="NaN or infinite values in 1 rows: 1"):
        fit.predict(torch.tensor([[0.0] * 4, [torch.nan] * 4]))
