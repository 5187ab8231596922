"""The k-NN protocol against scikit-learn's classifier with the paper's weights as a callable."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from real_features import SETS, features
from sklearn.neighbors import KNeighborsClassifier

from wessl.errors import UserError
from wessl.evaluate.neighbours import nearest_neighbours
from wessl.evaluate.protocol import Labelled


def oracle(train, test, k, temperature=0.07):
    """scikit-learn's distance is one minus the cosine."""
    model = KNeighborsClassifier(
        min(k, len(train)),
        metric="cosine",
        algorithm="brute",
        weights=lambda distance: np.exp((1 - distance) / temperature),
    )
    model.fit(train.features.double(), train.labels)
    return model.predict(test.features.double())


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("k", [1, 5, 20, 200])
def test_predictions_are_scikit_learns(name, k):
    train, test = features(name)
    result = nearest_neighbours(train, test, k)
    expected = oracle(train, test, k)
    assert (result["predicted"][0].numpy() != expected).sum() <= 1
    assert result["accuracy"] == pytest.approx((expected == test.labels.numpy()).mean(), abs=0.02)
    assert result["protocol"]["neighbours_chosen"] == "given beforehand"


@pytest.mark.parametrize("name", ["digits", "encoded digits", "iris"])
def test_k_is_chosen_where_scikit_learn_cross_validated_finds_it_best(name):
    train, test = features(name)
    result = nearest_neighbours(train, test)
    rng, right = np.random.default_rng(0), dict.fromkeys((5, 10, 20, 50, 100), 0)
    for _ in range(3):  # other folds than ours
        for held in np.array_split(rng.permutation(len(train)), 5):
            rest = np.setdiff1d(np.arange(len(train)), held)
            kept, asked = (Labelled(train.features[r], train.labels[r]) for r in (rest, held))
            for k in right:
                right[k] += (oracle(kept, asked, k) == asked.labels.numpy()).sum() / 3
    assert right[result["k"]] >= max(right.values()) - 0.01 * len(train)
    assert "5-fold cross-validation on" in result["protocol"]["neighbours_chosen"]
    assert "sweep" not in result


def test_choosing_on_the_test_pictures_takes_the_best_and_says_so():
    train, test = features("digits")
    result = nearest_neighbours(train, test, select="test")
    each = {str(k): nearest_neighbours(train, test, k)["accuracy"] for k in (5, 10, 20, 50, 100)}
    assert result["sweep"] == each
    assert result["accuracy"] == max(each.values())
    assert "optimistic" in result["protocol"]["neighbours_chosen"]
    kept = {key: value for key, value in result.items() if key != "predicted"}
    assert json.loads(json.dumps(kept, allow_nan=False)) == kept


def test_the_choice_depends_on_nothing_but_the_seed_and_the_training_pictures():
    train, test = features("wine")
    few = Labelled(test.features[:1], test.labels[:1])
    assert nearest_neighbours(train, few)["k"] == nearest_neighbours(train, test)["k"]


def test_one_picture_a_class_cannot_choose_k_and_takes_the_middle():
    train, test = features("digits")
    first = torch.stack([torch.nonzero(train.labels == c)[0, 0] for c in range(10)])
    few = Labelled(train.features[first], train.labels[first])
    result = nearest_neighbours(few, test)
    assert result["k"] == 20
    assert "one label a class" in result["protocol"]["neighbours_chosen"]
    similar = F.normalize(test.features, dim=1) @ F.normalize(few.features, dim=1).T
    assert torch.equal(result["predicted"][0], few.labels[similar.argmax(1)])


def test_two_training_pictures_of_one_class_are_enough_to_run():
    train = Labelled(torch.eye(3), torch.tensor([4, 4, 9]))
    assert nearest_neighbours(train, train)["k"] == 5


def test_a_class_missing_in_test_and_a_thousand_classes():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1000, 16, generator=generator)
    train = Labelled(x.repeat(3, 1), torch.arange(1000).repeat(3))
    test = Labelled(x[:400], torch.arange(400))
    result = nearest_neighbours(train, test)
    assert result["accuracy"] == 1
    assert (result["protocol"]["classes"], result["protocol"]["test_classes"]) == (1000, 400)


def test_mistakes_are_refused():
    train, test = features("iris")
    with pytest.raises(UserError, match="select must be val or test"):
        nearest_neighbours(train, test, select="train")
    broken = test.features.clone()
    broken[[2, 5], 0] = torch.inf
    with pytest.raises(UserError, match="test features has NaN or infinite values in 2 rows: 2, 5"):
        nearest_neighbours(train, Labelled(broken, test.labels))
