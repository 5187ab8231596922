import json

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_wine
from sklearn.metrics import confusion_matrix
from sklearn.neighbors import KNeighborsClassifier

from wessl.evaluate.statistics.bootstrap import accuracy_interval
from wessl.evaluate.statistics.confusion import confusion, per_class


@pytest.fixture(scope="module", params=[load_digits, load_wine], ids=["digits", "wine"])
def guessed(request):
    """Labels, and what two classifiers of different quality took them for."""
    data = request.param()
    x, y = data.data, data.target
    models = [KNeighborsClassifier(k).fit(x[::3], y[::3]) for k in (1, 9)]
    guesses = torch.tensor(np.stack([model.predict(x[1::3]) for model in models]))
    return guesses, torch.tensor(y[1::3]), [str(name) for name in data.target_names]


def test_confusion_is_the_mean_of_scikit_learns_over_draws(guessed):
    guesses, truth, names = guessed
    each = [confusion_matrix(truth, guess, normalize="true") for guess in guesses]
    ours = confusion(guesses, truth, len(names))
    np.testing.assert_allclose(ours, np.mean(each, axis=0), atol=1e-12)


def test_a_report_has_every_class_the_worst_pairs_and_the_matrix(guessed):
    guesses, truth, names = guessed
    report = per_class(guesses, truth, names)
    counts = sum(confusion_matrix(truth, guess) for guess in guesses)
    assert [one["name"] for one in report["classes"]] == names
    assert [one["pictures"] for one in report["classes"]] == truth.bincount().tolist()
    shares = counts / counts.sum(1, keepdims=True)
    np.testing.assert_allclose([one["accuracy"] for one in report["classes"]], shares.diagonal())
    np.testing.assert_allclose(report["confusion"], shares, atol=5e-5)
    np.fill_diagonal(shares, 0)
    worst = report["confused"][0]
    i, j = names.index(worst["true"]), names.index(worst["predicted"])
    assert worst["share"] == pytest.approx(shares.max())
    assert shares[i, j] == shares.max()
    assert worst["count"] == pytest.approx(counts[i, j] / 2, abs=0.05)
    assert sorted((p["share"] for p in report["confused"]), reverse=True) == [
        p["share"] for p in report["confused"]
    ]
    json.dumps(report, allow_nan=False)


def test_every_class_has_the_interval_its_own_pictures_give(guessed):
    guesses, truth, names = guessed
    report = per_class(guesses, truth, names, seed=1, taken=0.5)
    for i, one in enumerate(report["classes"]):
        own = (guesses == i)[:, truth == i]
        assert one["interval"] == list(accuracy_interval(own, 1, 0.5))
        low, high = one["interval"]
        assert low <= one["accuracy"] <= high
        assert low < high


def test_a_class_without_test_pictures_has_no_accuracy_but_keeps_its_place():
    report = per_class(torch.tensor([[0, 2, 1]]), torch.tensor([0, 2, 2]), ["ant", "bee", "cat"])
    assert [one["accuracy"] for one in report["classes"]] == [1.0, None, 0.5]
    assert report["classes"][1]["interval"] is None
    assert [one["pictures"] for one in report["classes"]] == [1, 0, 2]
    assert report["confusion"] == [[1, 0, 0], [0, 0, 0], [0, 0.5, 0.5]]
    assert report["confused"] == [dict(true="cat", predicted="bee", share=0.5, count=1.0)]


def test_labels_without_names_are_called_by_their_numbers_however_large():
    report = per_class(torch.tensor([[1990, 10**12]]), torch.tensor([10**12, 10**12]), None)
    assert [one["name"] for one in report["classes"]] == ["1990", "1000000000000"]
    assert report["confused"][0]["share"] == 0.5


def test_perfect_answers_confuse_nothing_and_a_thousand_classes_have_no_matrix():
    labels = torch.arange(1000).repeat(2)
    report = per_class(labels[None], labels, None)
    assert report["confused"] == []
    assert "confusion" not in report
    assert len(report["classes"]) == 1000
