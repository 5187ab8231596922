"""The linear grid against plain autograd in float64, one classifier at a time."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.datasets import load_digits

import wessl.evaluate.classifiers.linear_grid as grid_module
from wessl.data.cache.build import build_cache
from wessl.data.labelled.splits import fraction_draws
from wessl.data.loading.loader import epoch_order
from wessl.data.sources.open import open_source
from wessl.data.views.config import Crop, Photometric, Views
from wessl.data.views.make import make_views
from wessl.encoder.vit import ViT
from wessl.errors import UserError
from wessl.evaluate.classifiers.linear_grid import LinearGrid
from wessl.evaluate.features.trained_encoder import TrainedEncoder
from wessl.evaluate.labels import common_labels
from wessl.evaluate.protocol import Labelled
from wessl.evaluate.protocols.linear import LINEAR_LRS, linear, linear_fast
from wessl.evaluate.stores.features import FeatureStore


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    x, y = torch.tensor(data.data).float() / 16, torch.tensor(data.target)
    return Labelled(x[:1000], y[:1000]), Labelled(x[1000:], y[1000:])


def slow_training(feed, target, classes, lr, batch_size, epochs, seed=0):
    """Weights `(classes, d)` and biases of one classifier; `feed(step, rows)` gives features."""
    n = len(target)
    steps = math.ceil(n / batch_size)
    model = optimiser = None
    for step in range(epochs * steps):
        epoch, i = divmod(step, steps)
        rows = np.array_split(epoch_order(seed, epoch, n).numpy(), steps)[i]
        x = feed(step, torch.from_numpy(rows)).double()
        if model is None:
            model = torch.nn.Linear(x.shape[1], classes, dtype=torch.float64)
            torch.nn.init.zeros_(model.weight)
            torch.nn.init.zeros_(model.bias)
            optimiser = torch.optim.SGD(model.parameters(), 1.0, momentum=0.9, nesterov=True)
        for group in optimiser.param_groups:
            cosine = (1 + math.cos(math.pi * step / (epochs * steps))) / 2
            group["lr"] = lr * (n / steps) / 256 * cosine
        optimiser.zero_grad()
        F.cross_entropy(model(x), target[rows]).backward()
        optimiser.step()
    return model


def test_a_grid_holds_the_weights_of_classifiers_trained_one_at_a_time(digits):
    x, y = digits[0].features, digits[0].labels
    grid = LinearGrid(64, 10, LINEAR_LRS)
    for step in range(20):
        rows = epoch_order(0, step, 1000)[:300]
        grid.step(x[rows], y[rows], scale=1 - step / 20)
    for i, lr in enumerate(LINEAR_LRS):
        model = torch.nn.Linear(64, 10, dtype=torch.float64)
        torch.nn.init.zeros_(model.weight)
        torch.nn.init.zeros_(model.bias)
        optimiser = torch.optim.SGD(model.parameters(), lr, momentum=0.9, nesterov=True)
        for step in range(20):
            rows = epoch_order(0, step, 1000)[:300]
            optimiser.param_groups[0]["lr"] = lr * (1 - step / 20)
            optimiser.zero_grad()
            F.cross_entropy(model(x[rows].double()), y[rows]).backward()
            optimiser.step()
        torch.testing.assert_close(
            grid.weight[:, i].T.double(), model.weight.detach(), atol=1e-5, rtol=1e-4
        )
        torch.testing.assert_close(grid.bias[i].double(), model.bias.detach(), atol=1e-5, rtol=1e-4)


def test_the_fast_grid_predicts_what_the_slow_loop_predicts(digits):
    train, test = digits
    result = linear_fast(train, test, epochs=6, batch_size=400, select="test")
    assert [cell["lr"] for cell in result["grid"]] == list(LINEAR_LRS)
    for cell in result["grid"]:
        model = slow_training(
            lambda _, rows: train.features[rows], train.labels, 10, cell["lr"], 400, 6
        )
        predicted = model(test.features.double()).argmax(1)
        assert cell["accuracy"] == pytest.approx((predicted == test.labels).double().mean().item())
        if cell["lr"] == result["chosen"]["lr"]:
            assert torch.equal(result["predicted"], predicted)
    assert result["accuracy"] == max(cell["accuracy"] for cell in result["grid"])


def test_without_peeking_the_choice_is_made_on_held_out_pictures(digits):
    train, test = digits
    result = linear_fast(train, test, epochs=10, batch_size=300)
    shuffled = Labelled(test.features, test.labels.roll(1))
    again = linear_fast(train, shuffled, epochs=10, batch_size=300)
    assert again["chosen"] == result["chosen"]
    assert torch.equal(again["predicted"], result["predicted"])
    best = max(result["grid"], key=lambda cell: (cell["select_accuracy"], -cell["select_loss"]))
    assert result["chosen"] == {"lr": best["lr"], "reading": "cls"}
    assert result["accuracy"] == best["accuracy"]
    protocol = result["protocol"]
    assert (protocol["train_pictures"], protocol["held_out_pictures"]) == (900, 100)
    assert "held-out training pictures" in protocol["selected_on"]
    paper = linear_fast(train, test, epochs=1, select="test")["protocol"]
    assert paper["selected_on"] == "the test pictures, as in the paper (optimistic)"
    assert (paper["train_pictures"], paper["batch_size"]) == (1000, 1000)
    assert paper["lr_factor"] == 1000 / 256


def test_it_learns_digits_as_well_as_a_linear_classifier_can(digits):
    assert linear_fast(*digits)["accuracy"] > 0.9


def test_several_readings_share_a_pass_and_are_as_each_alone(digits):
    train, test = digits
    wide = [Labelled(torch.cat([s.features, s.features**2], 1), s.labels) for s in digits]
    both = linear_fast(
        {"cls": train, "cls4": wide[0]}, {"cls": test, "cls4": wide[1]}, epochs=5, batch_size=300
    )
    alone = [linear_fast(train, test, epochs=5, batch_size=300)]
    alone.append(linear_fast(*wide, reading="cls4", epochs=5, batch_size=300))
    assert both["grid"] == [cell for result in alone for cell in result["grid"]]
    assert both["per_reading"] == alone[0]["per_reading"] | alone[1]["per_reading"]
    assert both["accuracy"] == both["per_reading"][both["chosen"]["reading"]]["accuracy"]


def test_chunks_of_rows_change_nothing_but_rounding(digits, monkeypatch):
    whole = linear_fast(*digits, epochs=3, batch_size=300)
    monkeypatch.setattr(grid_module, "_LOGITS", 60 * 37)
    parts = linear_fast(*digits, epochs=3, batch_size=300)
    assert torch.equal(parts["predicted"], whole["predicted"])
    for a, b in zip(parts["grid"], whole["grid"], strict=True):
        assert a["select_loss"] == pytest.approx(b["select_loss"], rel=1e-3)


def test_labels_keep_their_values_and_two_classes_are_enough(digits):
    def two(side):
        rows = side.labels < 2
        return Labelled(side.features[rows], torch.tensor([100, -3])[side.labels[rows]])

    train, test = map(two, digits)
    result = linear_fast(train, test)
    assert result["accuracy"] > 0.97
    assert set(result["predicted"].tolist()) == {100, -3}
    right = (result["predicted"] == test.labels).double().mean().item()
    assert result["accuracy"] == pytest.approx(right)


def test_a_class_may_be_missing_in_test_and_one_missing_in_train_counts_as_wrong(digits):
    train, test = digits
    few = test.labels != 4
    absent = linear_fast(train, Labelled(test.features[few], test.labels[few]))
    assert absent["accuracy"] > 0.9
    known = train.labels != 4
    unknown = linear_fast(Labelled(train.features[known], train.labels[known]), test)
    assert 4 not in unknown["predicted"]
    wrong = (test.labels == 4).double().mean().item()
    assert 0.8 - wrong < unknown["accuracy"] < 1 - wrong


def test_a_class_with_one_picture_is_trained_on_and_never_held_out(digits):
    train, _ = digits
    rows = torch.cat([(train.labels == 4).nonzero()[:1, 0], (train.labels != 4).nonzero()[:, 0]])
    lonely = Labelled(train.features[rows], train.labels[rows])
    result = linear_fast(lonely, lonely, epochs=300, batch_size=200)
    assert result["predicted"][0] == 4
    with pytest.raises(UserError, match=r"every class has only one.*select='test'"):
        linear_fast(*[Labelled(torch.eye(3), torch.arange(3))] * 2)


@pytest.mark.parametrize("side", ["train", "test"])
def test_features_that_are_not_finite_are_named(digits, side):
    spoilt = digits[0].features.clone()
    spoilt[[3, 8], 5] = float("nan")
    bad = Labelled(spoilt, digits[0].labels)
    pair = (bad, digits[1]) if side == "train" else (digits[1], bad)
    with pytest.raises(UserError, match=rf"{side} features \(cls\) has NaN .* 2 rows: 3, 8"):
        linear_fast(*pair)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"select": "train"}, "select must be val or test"),
        ({"epochs": 0}, "epochs must be 1 or more"),
        ({"lrs": ()}, "learning rates"),
        ({"test": {"other": Labelled(torch.ones(4, 3), torch.zeros(4).long())}}, "readings differ"),
        ({"test": Labelled(torch.ones(4, 5), torch.zeros(4).long())}, "3 wide, test features 5"),
    ],
)
def test_what_cannot_be_meant_is_refused(change, message):
    side = Labelled(torch.rand(8, 3), torch.arange(8) % 2)
    with pytest.raises(UserError, match=message):
        linear_fast(**({"train": side, "test": side} | change))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Digits of both parts of the data, small enough for a transformer's 15 passes."""
    folder = tmp_path_factory.mktemp("pictures")
    data = load_digits()
    for part, rows in (("train", slice(0, 90)), ("test", slice(1000, 1060))):
        images = (data.images[rows] * 15).astype(np.uint8)
        np.savez(folder / f"{part}.npz", images=images, labels=data.target[rows])
    return [build_cache(open_source(folder / f"{p}.npz"), None, folder) for p in ("train", "test")]


@pytest.fixture(scope="module")
def encoder():
    torch.manual_seed(0)
    vit = ViT(dim=16, depth=4, heads=2, patch_size=4, image_size=8, in_channels=1)
    for parameter in vit.parameters():  # an untrained transformer hardly looks at the picture
        parameter.data.mul_(3)
    sides = dict(image_size=8, resize=8, mean=[0.3], std=[0.35], channels=1)
    return TrainedEncoder(vit, dict(encoder=dict(kind="vit", dim=16, depth=4), **sides))


def crops(cache, numbers, step, flip, seed):
    crop = Crop(8, 1, (0.08, 1.0), flip=0.5 * flip, photometric=Photometric.off())
    views = Views((crop,))
    return make_views(cache.batch(numbers), numbers, views, seed, step, [0.3], [0.35])[0]


@pytest.mark.parametrize("flip", [True, False])
def test_the_full_protocol_is_the_slow_loop_on_fresh_crops(encoder, pictures, flip):
    train, test = pictures
    lrs = (0.16, 1.6)
    result = linear(
        encoder, train, test, lrs=lrs, epochs=5, batch_size=32, flip=flip, seed=5, encoder_batch=20
    )
    protocol = result["protocol"]
    assert ("flip" in protocol["train_views"]) == flip
    assert protocol["held_out_pictures"] == 10
    middle = encoder.prepare(test.batch(torch.arange(len(test))))
    held = fraction_draws(train.labels, 0.1, 1, seed=5)[0]
    trained = torch.tensor(sorted(set(range(len(train))) - set(held.tolist())))
    for cell in result["grid"]:
        many = 4 if cell["reading"] == "cls4" else 1

        def read(images, many=many):
            blocks = encoder.encoder.last_blocks(images, many)
            return torch.cat([block[:, 0] for block in blocks], 1)

        def feed(step, rows, read=read):
            return read(crops(train, trained[rows], step, flip, seed=5))

        model = slow_training(feed, train.labels[trained], 10, cell["lr"], 32, 5, seed=5)
        predicted = model(read(middle).double()).argmax(1)
        assert abs(cell["accuracy"] - (predicted == test.labels).double().mean()) < 1e-9
        if {key: cell[key] for key in ("lr", "reading")} == result["chosen"]:
            assert torch.equal(result["predicted"], predicted)


def test_more_devices_change_nothing_and_progress_counts_every_picture(encoder, pictures):
    seen = []
    options = dict(readings=("cls", "cls+mean"), epochs=3, batch_size=50, encoder_batch=13)
    one = linear(encoder, *pictures, **options)
    two = linear(
        encoder,
        *pictures,
        **options,
        devices=["cpu", "cpu"],
        progress=lambda done, total: seen.append((done, total)),
    )
    assert torch.equal(one.pop("predicted"), two.pop("predicted"))
    assert one == two
    assert seen[-1] == (240, 240)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_parts_of_one_cache_may_be_trained_and_tested_on(encoder, pictures):
    train, _ = pictures
    rows = torch.randperm(90, generator=torch.Generator().manual_seed(0))
    options = dict(epochs=3, batch_size=64, select="test", flip=False)
    result = linear(encoder, train, train, **options, train_rows=rows[:60], test_rows=rows[60:])
    assert result["predicted"].shape == (30,)
    right = result["predicted"] == train.labels[rows[60:]]
    assert result["accuracy"] == pytest.approx(right.double().mean().item())
    protocol = result["protocol"]
    assert (protocol["train_pictures"], protocol["test_pictures"]) == (60, 30)

    def feed(step, numbers):
        return encoder.cls(crops(train, rows[numbers], step, flip=False, seed=0))

    cell = result["grid"][3]
    model = slow_training(feed, train.labels[rows[:60]], 10, cell["lr"], 64, 3)
    features = encoder.cls(encoder.prepare(train.batch(rows[60:])))
    expected = (model(features.double()).argmax(1) == train.labels[rows[60:]]).double().mean()
    assert cell["accuracy"] == pytest.approx(expected.item())


def test_features_of_the_test_pictures_come_from_the_store(encoder, pictures, tmp_path):
    calls = []
    hook = encoder.encoder.patch_embed.register_forward_hook(lambda *_: calls.append(1))
    options = dict(epochs=1, store=FeatureStore(tmp_path))
    first = linear(encoder, *pictures, **options)
    before = len(calls)
    second = linear(encoder, *pictures, **options)
    hook.remove()
    assert len(calls) - before == before - 1
    assert first["grid"] == second["grid"]


def test_an_encoder_that_breaks_on_crops_is_told_with_the_pictures(pictures):
    class Broken(torch.nn.Module):
        dim, patch_tokens = 4, True

        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(1))
            self.calls = 0

        def cls(self, images):
            self.calls += 1
            features = images.flatten(1)[:, :4] * self.weight
            if self.calls > 2:
                features[1] = torch.nan
            return features

    sides = dict(image_size=8, resize=8, mean=[0.3], std=[0.35], channels=1)
    broken = TrainedEncoder(Broken(), dict(encoder={}, **sides))
    with pytest.raises(UserError, match=r"NaN or infinite features for crops of 1 training"):
        linear(broken, *pictures, readings=("cls",), epochs=1)


def test_class_folders_are_matched_by_name(tmp_path):
    def folder(name, classes):
        for i, label in enumerate(classes):
            place = tmp_path / name / label
            place.mkdir(parents=True, exist_ok=True)
            Image.new("L", (8, 8), 20 * i).save(place / f"{i}.png")
        return build_cache(open_source(tmp_path / name), None, tmp_path / "cache")

    train = folder("train", ["ant", "bee", "cat"])
    labels, test_labels = common_labels(train, folder("test", ["ant", "cat", "dog"]))
    assert labels.tolist() == [0, 1, 2]
    assert test_labels.tolist() == [0, 2, 3]
    unlabelled = folder("flat", [""])
    with pytest.raises(UserError, match="the test pictures have no labels"):
        common_labels(train, unlabelled)
