"""k-NN against scikit-learn and against the vote written as a loop."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from real_features import SETS, features
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor

import wessl.evaluate.classifiers.knn as module
from wessl.evaluate.classifiers.knn import knn, knn_accuracy


def random_features(n: int, d: int, seed: int) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed))


def slow_vote(x: Tensor, y: Tensor, query: Tensor, k: int, temperature: float) -> int:
    """One query's label in float64: sort, weigh, add up, take the smallest of the winners."""
    cosine = torch.nn.functional.cosine_similarity(x.double(), query.double()[None], eps=1e-30)
    near = sorted(range(len(y)), key=lambda i: (-cosine[i].item(), i))[:k]
    votes: dict[int, float] = {}
    for i in near:
        votes[int(y[i])] = votes.get(int(y[i]), 0.0) + float(np.exp(cosine[i].item() / temperature))
    return max(sorted(votes), key=lambda label: votes[label])


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("k", [1, 5, 20, 50])
def test_predictions_are_those_of_scikit_learn_with_the_same_votes(name, k):
    train, test = features(name)
    model = KNeighborsClassifier(
        k, metric="cosine", algorithm="brute", weights=lambda far: np.exp((1 - far) / 0.07)
    ).fit(train.features.double(), train.labels)
    ours = knn(train.features, train.labels, test.features, k=k)[k]
    assert (ours.numpy() != model.predict(test.features.double())).sum() == 0


def test_each_k_of_a_sweep_equals_that_k_alone():
    x, y, test = random_features(300, 8, 0), torch.arange(300) % 7, random_features(40, 8, 1)
    sweep = knn(x, y, test, k=(20, 5, 50))
    assert list(sweep) == [20, 5, 50]
    for k, labels in sweep.items():
        assert torch.equal(labels, knn(x, y, test, k=k)[k])


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 60),
    d=st.integers(1, 5),
    k=st.integers(1, 80),
    classes=st.integers(1, 9),
    seed=st.integers(0, 10**6),
    temperature=st.sampled_from([0.07, 1.0]),
)
def test_the_vote_equals_the_plain_loop(n, d, k, classes, seed, temperature):
    x, test = random_features(n, d + 1, seed), random_features(5, d + 1, seed + 1)
    y = torch.randint(classes, (n,), generator=torch.Generator().manual_seed(seed))
    expected = [slow_vote(x, y, query, k, temperature) for query in test]
    assert knn(x, y, test, k=k, temperature=temperature)[k].tolist() == expected


def test_chunks_change_nothing(monkeypatch):
    x, y, test = random_features(500, 6, 0), torch.arange(500) % 10, random_features(70, 6, 1)
    x[250:] = x[:250]  # ties across chunks
    whole = knn(x, y, test, k=(1, 3, 40))
    monkeypatch.setattr(module, "_ROWS", 16)
    monkeypatch.setattr(module, "_COLUMNS", 48)
    monkeypatch.setattr(module, "_VOTES", 30)
    for k, labels in knn(x, y, test, k=(1, 3, 40)).items():
        assert torch.equal(labels, whole[k])


def test_equally_similar_neighbours_are_taken_in_training_order():
    x = torch.tensor([[0.0, 1.0]]).repeat(1000, 1)
    x[300:] = torch.tensor([1.0, 0.0])
    labels = torch.arange(1000)
    assert knn(x, labels, torch.tensor([[1.0, 0.0]]), k=1)[1].item() == 300


def test_an_equal_vote_goes_to_the_smallest_label():
    x = torch.eye(2)
    query = torch.ones(1, 2)
    assert knn(x, torch.tensor([9, 4]), query, k=2)[2].item() == 4
    assert knn(x, torch.tensor([4, 9]), query, k=2)[2].item() == 4


def test_the_scale_of_a_row_does_not_matter_however_large_or_small():
    x, y, test = random_features(100, 4, 0), torch.arange(100) % 5, random_features(20, 4, 1)
    scale = 10.0 ** torch.linspace(-30, 30, 100)
    plain, scaled = knn(x, y, test, k=7)[7], knn(x * scale[:, None], y, test * 1e-25, k=7)[7]
    assert torch.equal(plain, scaled)


def test_a_small_temperature_leaves_the_vote_to_the_nearest():
    x, y, test = random_features(100, 4, 0), torch.arange(100), random_features(20, 4, 1)
    nearest = knn(x, y, test, k=1)[1]
    assert torch.equal(knn(x, y, test, k=50, temperature=1e-6)[50], nearest)


def test_k_above_the_training_set_lets_all_vote_under_its_own_key():
    x, y, test = (
        random_features(6, 3, 0),
        torch.tensor([1, 1, 1, 2, 2, 2]),
        random_features(4, 3, 1),
    )
    result = knn(x, y, test, k=(6, 100))
    assert torch.equal(result[100], result[6])


def test_labels_keep_their_values_and_half_precision_is_accepted():
    x, y = random_features(50, 16, 0), torch.arange(50) * 1000 - 7
    assert torch.equal(knn(x.bfloat16(), y, x.bfloat16(), k=1)[1], y)


def test_many_classes_need_no_more_than_a_chunk_of_votes():
    x, y = random_features(3000, 16, 0), torch.arange(3000)
    assert torch.equal(knn(x, y, x, k=(1, 5))[5], y)


def test_accuracy_is_the_share_of_right_labels():
    x, y = random_features(40, 8, 0), torch.arange(40)
    wrong = y.clone()
    wrong[:10] = -1
    assert knn_accuracy(x, y, x, wrong, k=(1,)) == {1: 0.75}


def test_a_row_of_zeros_is_predicted_like_any_other():
    assert knn(torch.eye(2), torch.tensor([5, 6]), torch.zeros(1, 2), k=2)[2].tolist() == [5]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite_are_named_by_row(bad):
    x, y = random_features(20, 3, 0), torch.arange(20)
    spoilt = x.clone()
    spoilt[[4, 17], 1] = bad
    with pytest.raises(ValueError, match=r"test_features .* in 2 rows: 4, 17$"):
        knn(x, y, spoilt)
    with pytest.raises(ValueError, match=r"train_features .* in 2 rows: 4, 17$"):
        knn(spoilt, y, x)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": ()}, "k must be"),
        ({"k": (5, 0)}, "k must be"),
        ({"temperature": 0.0}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"train_labels": torch.zeros(4)}, "one integer for each"),
        ({"train_labels": torch.zeros(3).long()}, "one integer for each of the 4 rows"),
        ({"train_features": torch.zeros(0, 3), "train_labels": torch.zeros(0).long()}, "empty"),
        ({"test_features": torch.zeros(2, 5)}, "equally wide, not 3 and 5"),
        ({"test_features": torch.zeros(3)}, "must be a floating-point matrix"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_name(change, message):
    call = {
        "train_features": torch.ones(4, 3),
        "train_labels": torch.arange(4),
        "test_features": torch.ones(2, 3),
    }
    with pytest.raises(ValueError, match=message):
        knn(**(call | change))
