"""Whole few-shot results against scikit-learn: same draws, strengths, choice and predictions."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from real_features import SETS, features
from sklearn.linear_model import LogisticRegression

from wessl.data.labelled.splits import few_shot_draws, fraction_draws
from wessl.errors import UserError
from wessl.evaluate.classifiers.logistic import FEW_SHOT_STRENGTHS
from wessl.evaluate.protocol import Labelled
from wessl.evaluate.protocols.few_shot import few_shot

SWEEP = (1e-3, 3e-2, 1.0)


def fit(x, y, strength, on="mean"):
    c = 1 / strength if on == "sum" else 1 / (strength * len(y))
    return LogisticRegression(C=c, max_iter=10_000, tol=1e-8).fit(x.double().numpy(), y.numpy())


def scaled(side, kind):
    return F.normalize(side.features, dim=1) if kind == "unit" else side.features


def without_predictions(result):
    return {key: value for key, value in result.items() if key != "predicted"}


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("shots", [1, 5])
@pytest.mark.parametrize("kind", ["raw", "unit"])
@pytest.mark.parametrize("on", ["mean", "sum"])
def test_predictions_are_scikit_learns_on_the_same_draws(name, shots, kind, on):
    train, test = features(name)
    result = few_shot(train, test, shots, 3, seed=4, fixed=0.03, strength=on, features=kind)
    x, z = scaled(train, kind), scaled(test, kind)
    rows = few_shot_draws(train.labels, shots, 3, seed=4)
    for draw, predicted, accuracy in zip(
        rows, result["predicted"], result["per_draw"], strict=True
    ):
        expected = fit(x[draw], train.labels[draw], 0.03, on).predict(z.double())
        assert (predicted.numpy() != expected).sum() <= 1  # a tie of two classes may fall apart
        assert accuracy == pytest.approx((predicted == test.labels).double().mean().item())
    assert result["accuracy"] == pytest.approx(np.mean(result["per_draw"]))
    assert result["sd"] == pytest.approx(np.std(result["per_draw"], ddof=1))
    assert result["strength"] == [0.03] * 3


def plain_choice(x, y, strengths, on, folds):
    """Log-likelihood of every picture, predicted by the pictures of the other folds."""
    fold_of, seen = [], {}
    for label in y.tolist():
        fold_of.append(seen.get(label, 0) % folds)
        seen[label] = seen.get(label, 0) + 1
    fold_of = np.array(
        [-1 if seen[c] == 1 else f for c, f in zip(y.tolist(), fold_of, strict=True)]
    )
    total = []
    for strength in strengths:
        value = 0.0
        for fold in range(folds):
            kept, held = fold_of != fold, fold_of == fold
            if held.any():
                model = fit(x[kept], y[kept], strength, on)
                logs = model.predict_log_proba(x[held].double().numpy())
                value += logs[
                    np.arange(held.sum()), np.searchsorted(model.classes_, y[held].numpy())
                ].sum()
        total.append(value)
    return strengths[int(np.argmax(total))]


@pytest.mark.parametrize("name", ["digits", "encoded digits", "wine"])
@pytest.mark.parametrize(("shots", "on"), [(2, "mean"), (5, "sum")])
def test_the_strength_is_chosen_as_by_a_plain_loop_of_cross_validation(name, shots, on):
    train, test = features(name)
    result = few_shot(train, test, shots, 4, strengths=SWEEP, strength=on)
    x, y = scaled(train, "unit"), train.labels
    rows = few_shot_draws(y, shots, 4)
    assert result["strength"] == [plain_choice(x[r], y[r], SWEEP, on, min(5, shots)) for r in rows]
    assert "cross-validation" in result["protocol"]["strength_chosen"]


def test_lists_of_different_sizes_with_rare_classes_are_chosen_as_by_a_plain_loop():
    train, test = features("digits")
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(0))
    lists = [order[:25].sort().values, order[25:65].sort().values]
    counts = [train.labels[r].bincount(minlength=10) for r in lists]
    assert min(c.min() for c in counts) <= 1 < min(c.median() for c in counts)
    for on in ("mean", "sum"):
        result = few_shot(train, test, lists, strengths=SWEEP, strength=on)
        folds = min(5, *(int(c[c > 0].median()) for c in counts))
        x = scaled(train, "unit")
        assert result["strength"] == [
            plain_choice(x[r], train.labels[r], SWEEP, on, folds) for r in lists
        ]
        for r, strength, predicted in zip(
            lists, result["strength"], result["predicted"], strict=True
        ):
            model = fit(x[r], train.labels[r], strength, on)
            wrong = predicted.numpy() != model.predict(scaled(test, "unit").double())
            assert wrong.sum() <= 1
    assert result["protocol"]["labelled_pictures"] == [25, 40]
    assert result["protocol"]["drawn"] == "given lists"


def test_one_label_a_class_takes_the_middle_of_the_sweep_and_says_so():
    result = few_shot(*features("wine"), 1, 5)
    assert result["strength"] == [FEW_SHOT_STRENGTHS[5]] * 5
    assert "middle of the sweep" in result["protocol"]["strength_chosen"]


def test_choosing_on_the_test_pictures_takes_the_best_mean_and_says_it_is_optimistic():
    train, test = features("digits")
    result = few_shot(train, test, 2, 4, select="test", strengths=SWEEP)
    fixed = {s: few_shot(train, test, 2, 4, fixed=s)["accuracy"] for s in SWEEP}
    assert result["sweep"] == pytest.approx({str(s): a for s, a in fixed.items()})
    assert result["accuracy"] == max(fixed.values())
    assert len(set(result["strength"])) == 1
    assert "test pictures" in result["protocol"]["strength_chosen"]
    assert "optimistic" in result["protocol"]["strength_chosen"]
    honest = few_shot(train, test, 2, 4, strengths=SWEEP)
    assert honest["accuracy"] <= result["accuracy"] + 0.01
    assert "sweep" not in honest  # accuracies on the test pictures would tempt to choose by them


def test_a_share_of_every_class_is_drawn_as_asked():
    train, test = features("digits")
    result = few_shot(train, test, 0.05, 3, seed=1)
    rows = fraction_draws(train.labels, 0.05, 3, seed=1)
    assert result["protocol"]["name"] == "5%"
    assert result["protocol"]["labelled_pictures"] == [len(rows[0])]
    given = few_shot(train, test, rows)
    assert torch.equal(given["predicted"], result["predicted"])


def test_all_labels_are_one_draw():
    result = few_shot(*features("iris"), 1.0)
    assert (result["draws"], result["protocol"]["labelled_pictures"]) == (1, [90])
    assert "sd" not in result


def test_a_result_is_strict_json_and_says_how_it_was_made():
    result = few_shot(*features("iris"), 5, 3)
    json.dumps(without_predictions(result), allow_nan=False)
    said = result["protocol"]
    assert said["name"] == "5-shot"
    assert said["strengths"] == list(FEW_SHOT_STRENGTHS)
    assert (said["strength_on"], said["features"]) == ("mean loss", "each scaled to length 1")
    assert said["drawn"] == "stratified, nested, seed 0"
    assert (said["train_pictures"], said["test_pictures"]) == (90, 60)
    assert (said["classes"], said["test_classes"]) == (3, 3)


def test_a_class_missing_in_test_is_still_a_wrong_answer_one_can_give():
    train, test = features("digits")
    some = test.labels != 3
    fewer = Labelled(test.features[some], test.labels[some], test.classes)
    whole, part = (few_shot(train, side, 5, 2) for side in (test, fewer))
    assert torch.equal(part["predicted"], whole["predicted"][:, some])
    assert (part["protocol"]["classes"], part["protocol"]["test_classes"]) == (10, 9)


def test_labels_may_be_any_numbers_and_one_test_picture_is_enough():
    train, test = features("iris")
    odd = Labelled(train.features, train.labels * 100 + 7)
    one = Labelled(test.features[:1], test.labels[:1] * 100 + 7)
    result = few_shot(odd, one, 5, 4)
    assert result["predicted"].shape == (4, 1)
    assert set(result["predicted"].flatten().tolist()) <= {7, 107, 207}


def test_a_thousand_classes_of_random_features():
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(1000, 32, generator=generator)
    labels = torch.arange(1000).repeat(2)
    near = Labelled(centres[labels] + 0.1 * torch.randn(2000, 32, generator=generator), labels)
    result = few_shot(near, near, 1, 2, fixed=1e-3)
    assert result["accuracy"] > 0.99
    assert result["protocol"]["labelled_pictures"] == [1000]


def test_half_precision_features_are_solved_in_full():
    train, test = features("wine")
    half = [Labelled(side.features.bfloat16(), side.labels) for side in (train, test)]
    full = [Labelled(side.features.bfloat16().float(), side.labels) for side in (train, test)]
    results = [few_shot(*sides, 5, 2)["predicted"] for sides in (half, full)]
    assert torch.equal(*results)


def test_a_class_with_too_few_labels_is_named():
    train, test = features("wine")
    kept = torch.cat(
        [torch.nonzero(train.labels != 1)[:, 0], torch.nonzero(train.labels == 1)[:3, 0]]
    )
    short = Labelled(train.features[kept], train.labels[kept], ["red", "rose", "white"])
    with pytest.raises(UserError, match="class 'rose' has 3 pictures, fewer than 5 shots"):
        few_shot(short, test, 5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (dict(select="tset"), "select must be val or test, not 'tset'"),
        (dict(strength="median"), "strength must be mean or sum"),
        (dict(features="scaled"), "features must be raw or unit"),
        (dict(fixed=-1.0), "above 0"),
        (dict(draws=0), "at least 1"),
    ],
)
def test_wrong_settings_are_refused(options, words):
    with pytest.raises(UserError, match=words):
        few_shot(*features("iris"), 2, **options)


def test_features_that_are_not_finite_are_refused_with_their_rows():
    train, test = features("iris")
    broken = test.features.clone()
    broken[7, 1] = torch.nan
    with pytest.raises(UserError, match="test features has NaN or infinite values in 1 rows: 7"):
        few_shot(train, Labelled(broken, test.labels), 1)
    with pytest.raises(UserError, match="empty list"):
        few_shot(train, test, [])
