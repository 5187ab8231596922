"""Transfer: scikit-learn's regression on the same pictures, seen as Pillow would show them."""

from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.datasets import load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score

from wessl.data.batch import Batch
from wessl.data.labelled.splits import held_out
from wessl.data.labelled.transfer_sets import open_transfer_set
from wessl.encoder.vit import ViT
from wessl.errors import UserError
from wessl.evaluate.classifiers.logistic import TRANSFER_STRENGTHS
from wessl.evaluate.contestants import pixels
from wessl.evaluate.features.trained_encoder import TrainedEncoder
from wessl.evaluate.protocol import Labelled
from wessl.evaluate.protocols.transfer import squashed, transfer
from wessl.evaluate.protocols.transfer_features import transfer_features
from wessl.evaluate.statistics.bootstrap import accuracy_interval, class_mean_interval
from wessl.evaluate.stores.features import FeatureStore

STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0)


def digits(*bounds):
    data = load_digits()
    x, y = torch.tensor(data.data).float() / 16, torch.tensor(data.target)
    return [Labelled(x[a:b], y[a:b]) for a, b in pairwise(bounds)]


def oracle(train, strength):
    model = LogisticRegression(C=1 / (strength * len(train)), max_iter=5000, tol=1e-8)
    return model.fit(F.normalize(train.features, dim=1), train.labels)


def accuracy(model, side, metric):
    guess = model.predict(F.normalize(side.features, dim=1))
    if metric == "top-1":
        return float((guess == side.labels.numpy()).mean())
    return balanced_accuracy_score(side.labels, guess)


def together(a, b):
    return Labelled(torch.cat([a.features, b.features]), torch.cat([a.labels, b.labels]))


@pytest.mark.parametrize("metric", ["top-1", "mean per class"])
@pytest.mark.parametrize("given", [True, False])
def test_the_strength_is_chosen_off_the_test_and_the_classifier_learns_from_all(metric, given):
    train, val, test = digits(0, 300, 450, 800)
    if given:
        learn, check, everything = train, val, together(train, val)
    else:
        kept, held = held_out(train.labels, 0.2, 3)
        learn, check = (Labelled(train.features[r], train.labels[r]) for r in (kept, held))
        everything, val = train, None
    expected = [accuracy(oracle(learn, s), check, metric) for s in STRENGTHS]
    best = STRENGTHS[max(i for i, a in enumerate(expected) if a == max(expected))]
    result = transfer_features(train, val, test, metric, strengths=STRENGTHS, seed=3)
    assert result["strength"] == best
    assert list(result["sweep"].values()) == pytest.approx(expected, abs=1e-9)
    assert result["accuracy"] == pytest.approx(
        accuracy(oracle(everything, best), test, metric), abs=1.01 / len(test)
    )
    assert result["protocol"]["train_pictures"] == len(everything)
    word = "validation pictures" if given else "held-out 20%"
    assert word in result["protocol"]["strength_chosen"]
    assert result["converged"]


def test_choosing_on_the_test_is_the_best_of_the_sweep_and_says_so():
    train, val, test = digits(0, 200, 260, 700)
    result = transfer_features(train, val, test, select="test", strengths=STRENGTHS)
    expected = [accuracy(oracle(together(train, val), s), test, "top-1") for s in STRENGTHS]
    assert list(result["sweep"].values()) == pytest.approx(expected, abs=1.01 / len(test))
    assert result["accuracy"] == max(result["sweep"].values())
    assert "optimistic" in result["protocol"]["strength_chosen"]


def test_a_strength_on_the_sum_is_one_on_the_mean_divided_by_the_pictures():
    train, test = digits(0, 200, 600)
    of_sum = transfer_features(train, None, test, select="test", strength="sum", strengths=[20.0])
    of_mean = transfer_features(train, None, test, select="test", strengths=[0.1])
    assert torch.equal(of_sum["predicted"], of_mean["predicted"])
    assert (of_sum["strength"], of_mean["strength"]) == (20.0, 0.1)


def test_the_numbers_of_every_class_make_both_metrics():
    data = load_wine()
    x = torch.tensor((data.data - data.data.mean(0)) / data.data.std(0)).float()
    y = torch.tensor(data.target)
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(0))
    names = [str(name) for name in data.target_names]
    train, test = (Labelled(x[r], y[r], names) for r in (order[:20], order[20:]))
    result = transfer_features(train, None, test, "mean per class", features="raw")
    guess = result["predicted"][0]
    assert result["mean_per_class"] == result["accuracy"]
    assert result["accuracy"] == pytest.approx(balanced_accuracy_score(test.labels, guess))
    assert result["top_1"] == pytest.approx(float((guess == test.labels).double().mean()))
    for i, name in enumerate(names):
        own = guess[test.labels == i] == i
        assert result["per_class"][name] == pytest.approx(float(own.double().mean()))
        low, high = result["per_class_interval"][name]
        assert low <= result["per_class"][name] <= high
    assert list(result["sweep"]) == [str(s) for s in TRANSFER_STRENGTHS]


def test_the_interval_is_that_of_the_metric_the_dataset_asks_for():
    train, test = digits(0, 200, 900)
    test = Labelled(test.features[:600], test.labels[:600].clamp(max=5))  # half of them are fives
    for metric in ("top-1", "mean per class"):
        result = transfer_features(train, None, test, metric, strengths=[0.1], seed=2)
        right = result["predicted"][0] == test.labels
        expected = (
            accuracy_interval(right[None], 2)
            if metric == "top-1"
            else class_mean_interval(right, test.labels, 2)
        )
        assert result["interval"] == list(expected)
        assert expected[0] < result["accuracy"] < expected[1]


def test_one_picture_a_class_leaves_nothing_to_choose_on():
    train = Labelled(torch.eye(3), torch.arange(3))
    with pytest.raises(UserError, match="use select=test"):
        transfer_features(train, None, train)
    assert transfer_features(train, None, train, select="test")["accuracy"] == 1.0
    with pytest.raises(UserError, match="select must be val or test, not 'best'"):
        transfer_features(train, None, train, select="best")


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    vit = ViT(dim=64, depth=2, heads=1, patch_size=8, image_size=56)
    described = dict(encoder={}, channels=3, mean=[0.5] * 3, std=[0.25] * 3)
    return TrainedEncoder(vit, described | dict(image_size=56, resize=64))


def test_pictures_are_squashed_on_both_sides_and_cropped_in_the_middle(encoder):
    rng = np.random.default_rng(0)
    small = Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8))
    photo = small.resize((180, 90), Image.Resampling.BICUBIC)
    seen = squashed(encoder).prepare(Batch.collate([np.asarray(photo)]))[0]
    shown = photo.resize((64, 64), Image.Resampling.BICUBIC).crop((4, 4, 60, 60))
    expected = (torch.from_numpy(np.asarray(shown).copy()).permute(2, 0, 1) / 255 - 0.5) / 0.25
    assert seen.shape == (3, 56, 56)
    assert (seen - expected).abs().max() < 4 * 1.6 / 255


@pytest.fixture
def shells(tmp_path):
    """Two kinds told apart by their colour, in pictures of many shapes."""
    rng = np.random.default_rng(0)
    root = tmp_path / "shells"
    for part, count in {"train": 8, "val": 3, "test": 5}.items():
        for label, tint in {"clam": (200, 60, 60), "whelk": (60, 60, 200)}.items():
            (root / part / label).mkdir(parents=True)
            for i in range(count):
                size = (*rng.integers(40, 120, 2), 3)
                pixels = np.clip(np.array(tint) + rng.normal(0, 20, size), 0, 255)
                Image.fromarray(pixels.astype(np.uint8)).save(root / part / label / f"{i}.jpg")
    return root


def test_an_encoder_is_measured_on_a_folder_and_the_result_says_how(encoder, shells, tmp_path):
    store = FeatureStore(tmp_path / "run")
    result = transfer(encoder, shells, store=store, directory=tmp_path / "cache")
    assert result["accuracy"] == 1.0
    assert result["per_class"] == {"clam": 1.0, "whelk": 1.0}
    protocol = result["protocol"]
    assert (protocol["name"], protocol["metric"]) == ("transfer to shells", "top-1")
    assert protocol["transform"] == "squashed to 64 x 64, centre 56"
    assert (protocol["train_pictures"], protocol["test_pictures"]) == (22, 10)
    assert protocol["unreadable"] == {"train": 0, "val": 0, "test": 0}
    assert encoder.description["resize"] == 64
    again = transfer(encoder, open_transfer_set(shells), store=store, directory=tmp_path / "cache")
    assert torch.equal(again["predicted"], result["predicted"])


def test_raw_pixels_are_measured_by_the_same_protocol(encoder, shells, tmp_path):
    result = transfer(encoder, shells, directory=tmp_path / "cache", see=pixels)
    assert result["accuracy"] == 1.0  # their colours are enough
    ours = transfer(encoder, shells, directory=tmp_path / "cache")
    assert result["protocol"] == ours["protocol"]


def test_unreadable_pictures_are_counted_or_too_many(encoder, shells, tmp_path):
    (shells / "train/clam/0.jpg").write_bytes(b"no picture")
    with pytest.raises(UserError, match="1 of 16 pictures cannot be decoded"):
        transfer(encoder, shells, directory=tmp_path / "cache")
    result = transfer(encoder, shells, directory=tmp_path / "cache", max_bad=1)
    assert result["protocol"]["unreadable"] == {"train": 1, "val": 0, "test": 0}
    assert result["protocol"]["train_pictures"] == 21


def test_an_encoder_of_other_channels_is_told(encoder, shells, tmp_path):
    with pytest.raises(UserError, match=r"has 1 channel, the encoder sees 3; open it with"):
        transfer(encoder, open_transfer_set(shells, channels=1), directory=tmp_path / "cache")
