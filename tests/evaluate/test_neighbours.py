"""The k-NN protocol against scikit-learn's classifier with the paper's weights as a callable."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from real_features import SETS, features
from sklearn.neighbors import KNeighborsClassifier

from wessl.bench.memory import peak_bytes
from wessl.errors import UserError
from wessl.evaluate.classifiers import knn
from wessl.evaluate.protocol import Labelled
from wessl.evaluate.protocols import neighbours
from wessl.evaluate.protocols.neighbours import nearest_neighbours


def oracle(train, test, k):
    return oracle_model(train, k).predict(test.features.double())


def oracle_model(train, k, temperature=0.07):
    """scikit-learn's distance is one minus the cosine; asked for None it leaves each one out."""
    model = KNeighborsClassifier(
        min(k, len(train)),
        metric="cosine",
        algorithm="brute",
        weights=lambda distance: np.exp((1 - distance) / temperature),
    )
    return model.fit(train.features.double(), train.labels)


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
def test_k_is_the_one_by_which_scikit_learn_names_most_pictures_from_all_others(name):
    train, test = features(name)
    result = nearest_neighbours(train, test)
    labels = train.labels.numpy()
    right = {
        k: (oracle_model(train, min(k, len(train) - 1)).predict(None) == labels).sum()
        for k in (5, 10, 20, 50, 100)
    }
    assert right[result["k"]] >= max(right.values()) - 1  # where two neighbours are equally near
    chosen = result["protocol"]["neighbours_chosen"]
    assert chosen.startswith(f"by leave-one-out on {len(train)} training pictures")
    assert "sweep" not in result


def test_choosing_k_copies_no_features(monkeypatch):
    monkeypatch.setattr(knn, "_ROWS", 64)
    monkeypatch.setattr(knn, "_COLUMNS", 512)
    x = torch.randn(20_000, 256, generator=torch.Generator().manual_seed(0))
    train = Labelled(x, torch.arange(len(x)) % 7)
    test = Labelled(x[:64], train.labels[:64])
    monkeypatch.setattr(neighbours, "ASKED", 1000)
    extra = peak_bytes(lambda: nearest_neighbours(train, test), x.device)
    assert extra < 0.6 * x.nbytes


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
