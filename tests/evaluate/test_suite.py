import pytest
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from wessl.data.splits import few_shot_draws
from wessl.evaluate.suite import Labelled, few_shot, nearest_neighbours


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    x, y = torch.tensor(data.data).float() / 16, torch.tensor(data.target)
    return Labelled(x[:1000], y[:1000]), Labelled(x[1000:], y[1000:])


@pytest.mark.parametrize("shots", [1, 5])
def test_few_shot_is_scikit_learns_regression_on_the_same_draws(digits, shots):
    train, test = digits
    result = few_shot(train, test, shots, draws=3, strength=0.03)
    x, z = F.normalize(train.features, dim=1), F.normalize(test.features, dim=1)
    for accuracy, chosen in zip(
        result["per_draw"], few_shot_draws(train.labels, shots, 3, 0), strict=True
    ):
        model = LogisticRegression(C=1 / (0.03 * len(chosen)), max_iter=5000, tol=1e-8)
        model.fit(x[chosen], train.labels[chosen])
        expected = (model.predict(z) == test.labels.numpy()).mean()
        assert abs(accuracy - expected) <= 1 / len(test.labels)


def test_a_result_says_how_it_was_made(digits):
    result = few_shot(*digits, shots=2, draws=4)
    protocol = result["protocol"]
    assert (protocol["name"], protocol["draws"], protocol["strength"]) == ("2-shot", 4, 0.03)
    per_draw = torch.tensor(result["per_draw"], dtype=torch.float64)
    assert result["accuracy"] == pytest.approx(per_draw.mean().item())
    assert result["standard_error"] == pytest.approx(per_draw.std().item() / 2)
    assert nearest_neighbours(*digits)["protocol"]["k"] == 20


def test_more_labels_help_and_all_labels_most(digits):
    one, five = (few_shot(*digits, shots=n, draws=5)["accuracy"] for n in (1, 5))
    assert one < five < nearest_neighbours(*digits)["accuracy"]
