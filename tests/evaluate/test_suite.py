"""Several protocols and encoders side by side: names, baselines, rows, differences, the table."""

import io
import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from rich.console import Console

from wessl.config import EncoderConfig
from wessl.data.cache.build import build_cache
from wessl.data.sources.open import open_source
from wessl.errors import UserError
from wessl.evaluate.contestants import Contestant, pixels, untrained
from wessl.evaluate.features.trained_encoder import TrainedEncoder, extract
from wessl.evaluate.protocol import Labelled
from wessl.evaluate.protocol_names import check_protocols, default_protocols
from wessl.evaluate.protocols.few_shot import few_shot
from wessl.evaluate.protocols.neighbours import nearest_neighbours
from wessl.evaluate.protocols.transfer_features import transfer_features
from wessl.evaluate.settings import Settings
from wessl.evaluate.spelling import settle
from wessl.evaluate.statistics.bootstrap import difference_interval
from wessl.evaluate.stores.features import FeatureStore
from wessl.evaluate.suite import details, differences, make_row, measure
from wessl.evaluate.table import explain, explain_confused, print_comparison, print_transfer
from wessl.evaluate.task import Task
from wessl.run import build_encoder
from wessl.settings import to_dict

CPU = torch.device("cpu")


def encoder_of(**options):
    config = EncoderConfig(**(dict(kind="conv", widths=(8, 16), image_size=8) | options))
    described = dict(
        encoder=to_dict(config), channels=1, mean=[0.3], std=[0.4], image_size=8, resize=8
    )
    torch.manual_seed(3)
    return TrainedEncoder(build_encoder(config, 1), described)


def contestant(name, encoder, role="run"):
    return Contestant(name, role, encoder, FeatureStore(None), CPU, encoder or encoder_of())


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    caches = [
        build_cache(open_source(f"builtin://digits/{side}"), None, folder, workers=0)
        for side in ("train", "test")
    ]
    return Task(*caches, *(cache.labels for cache in caches))


@pytest.fixture(scope="module")
def measured(task):
    """An encoder's and raw pixels' results by three protocols."""
    settings, names = Settings(draws=3), ["2-shot", "k-NN", "linear-fast"]
    both = contestant("ours", encoder_of()), contestant("raw pixels", None, "pixels")
    return [(one, dict(measure(one, task, names, settings, {}))) for one in both]


def test_the_suite_is_each_protocol_by_itself_on_the_same_features(task, measured):
    ours, results = measured[0]
    x, z = (extract(ours.encoder, cache) for cache in (task.train, task.test))
    sides = Labelled(x, task.train_labels, task.classes), Labelled(z, task.test_labels)
    assert torch.equal(results["2-shot"]["predicted"], few_shot(*sides, 2, 3)["predicted"])
    assert torch.equal(results["k-NN"]["predicted"], nearest_neighbours(*sides)["predicted"])
    assert list(results) == ["2-shot", "k-NN", "linear-fast"]


def test_small_pictures_of_one_size_are_their_own_pixels(task):
    x, z = pixels([task.train, task.test], encoder_of())
    assert (x.shape, z.shape) == ((1297, 64), (500, 64))
    assert torch.equal(x[5].view(8, 8, 1), task.train.picture(5).float() / 255)


def test_pixels_of_pictures_of_other_sizes_are_equally_wide(task, tmp_path):
    images = np.stack([
        np.asarray(Image.fromarray(task.test.picture(i)[..., 0].numpy()).resize((20, 24)))
        for i in range(40)
    ])  # fmt: skip
    np.savez(tmp_path / "large.npz", images=images)
    large = build_cache(open_source(tmp_path / "large.npz"), None, tmp_path, workers=0)
    x, z = pixels([task.train, large], encoder_of())
    assert x.shape[1] == z.shape[1] == 64
    assert 0 <= z.min() < z.max() <= 1.3  # bicubic overshoots a little
    plain = pixels([task.test], encoder_of())[0][:40]
    assert F.cosine_similarity(z, plain).mean() > 0.9


def test_the_random_encoder_has_the_same_shape_other_weights_and_is_the_same_each_time():
    ours = encoder_of()
    before = torch.get_rng_state()
    one, two = (untrained(ours).encoder.state_dict() for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[name], two[name]) for name in one)
    own = ours.encoder.state_dict()
    assert one.keys() == own.keys()
    assert any(not torch.equal(one[name], own[name]) for name in one)


def test_a_vit_is_read_as_the_paper_reads_its_size():
    small = encoder_of(kind="vit", dim=16, depth=4, heads=2, patch_size=4, image_size=8)
    wide = encoder_of(kind="vit", dim=768, depth=1, heads=2, patch_size=4, image_size=8)
    assert contestant("S", small).readings == ("cls", "cls4")
    assert contestant("B", wide).readings == ("cls", "cls+mean")
    assert contestant("conv", encoder_of()).readings == ("cls",)


def test_rows_have_intervals_and_differences_are_paired(task, measured):
    ours, pixels_row = (make_row(one, task, results, 0) for one, results in measured)
    gains = differences(pixels_row, ours, 0)
    for name, gain in gains.items():
        accuracy = [row.results[name]["accuracy"] for row in (pixels_row, ours)]
        assert gain["difference"] == pytest.approx(accuracy[0] - accuracy[1])
        correct = [row.correct[name] for row in (pixels_row, ours)]
        share = 20 / len(task.train_labels) if name == "2-shot" else 0.0
        assert gain["interval"] == list(difference_interval(*correct, taken=share))
        low, high = ours.results[name]["interval"]
        assert low < ours.results[name]["accuracy"] < high
    assert ours.correct["2-shot"].shape == (3, 500)
    json.dumps([ours.results, gains], allow_nan=False)
    assert len(ours.weights) == 64
    assert pixels_row.weights is None


def test_classes_are_told_by_the_few_shot_protocol_with_the_most_labels(task, measured):
    results = measured[0][1]
    assert details(results, task)["protocol"] == "2-shot"
    only = details({"k-NN": results["k-NN"]}, task)
    assert (only["protocol"], only["few_labels"]) == ("k-NN", False)
    mean = np.average(
        [one["accuracy"] for one in only["classes"]],
        weights=[one["pictures"] for one in only["classes"]],
    )
    assert mean == pytest.approx(results["k-NN"]["accuracy"])


def test_default_protocols_suit_the_labels():
    def of(count, classes=3):
        return default_protocols(torch.arange(classes).repeat_interleave(count))

    assert of(1) == ["1-shot", "k-NN"]
    assert of(2) == ["1-shot", "2-shot", "k-NN", "linear-fast"]
    assert of(600) == ["1-shot", "2-shot", "5-shot", "1%", "k-NN", "linear-fast"]
    assert default_protocols(torch.tensor([0, 0, 0, 1])) == ["1-shot", "k-NN", "linear-fast"]


@pytest.mark.parametrize("name", ["0-shot", "shot", "k-nm", "0%", "101%", "1.2.3%", "%", ""])
def test_unknown_protocols_are_refused_with_those_there_are(name):
    with pytest.raises(UserError, match=r"--protocols .* is unknown; choose from 1-shot"):
        settle(name)


def test_names_of_protocols_have_one_spelling():
    names = ["KNN", "k-nn", "13-shot", "0.10%", "100%", "Linear"]
    assert [settle(n) for n in names] == ["k-NN", "k-NN", "13-shot", "0.1%", "100%", "linear"]


def test_what_the_labels_do_not_allow_is_refused_before_any_feature(task):
    def with_labels(labels):
        return Task(task.train, task.test, labels, task.test_labels)

    two = with_labels(torch.tensor([0, 0, 1, 3, 3]))
    with pytest.raises(UserError, match=r"2-shot: class '1' .* 1 labelled picture, fewer"):
        check_protocols(["2-shot"], two, {}, "val")
    check_protocols(["2-shot", "linear"], two, {"2-shot": []}, "val")
    single = with_labels(torch.arange(4))
    with pytest.raises(UserError, match="linear-fast chooses on held-out labels"):
        check_protocols(["linear-fast"], single, {}, "val")
    check_protocols(["linear-fast"], single, {}, "test")
    with pytest.raises(UserError, match="one class only"):
        check_protocols(["k-NN"], with_labels(torch.zeros(4).long()), {}, "val")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (dict(draws=0), "--draws must be 1 or more, not 0"),
        (dict(linear_epochs=0), "--linear-epochs must be 1 or more"),
        (dict(use_strength=0.0), "--use-strength must be a number above 0"),
        (dict(use_strength=float("nan")), "--use-strength must be a number above 0"),
        (dict(select="best"), "select must be val or test"),
    ],
)
def test_wrong_settings_are_named_by_their_flag(settings, words):
    with pytest.raises(UserError, match=words):
        Settings(**settings).check()


def test_features_that_are_not_finite_are_named_by_their_pictures(task):
    broken = encoder_of()
    for parameter in broken.parameters():
        parameter.data.fill_(torch.nan)
    with pytest.raises(UserError, match=r"ours, cls of --train.*1297 of 1297 pictures: .*\[0\]"):
        task.features(contestant("ours", broken), "fp32")


def invented(runs, columns):
    """A record with numbers of the usual width."""
    result = dict(
        accuracy=0.9876, interval=[0.95, 0.999], draws=30, protocol=dict(strength_chosen="so")
    )
    gain = dict(difference=-0.1234, interval=[-0.2, -0.05])
    rows = [
        dict(name=name, role=role, results=dict.fromkeys(columns, result))
        for name, role in [*((run, "run") for run in runs), ("raw pixels", "pixels")]
    ]
    gains = [
        dict(name=row["name"], base=runs[0], results=dict.fromkeys(columns, gain))
        for row in rows[1:]
    ]
    place = dict(pictures=500, classes=10, location="somewhere/with/a/rather/long/name/" * 2)
    settings = dict(select="test")
    return dict(
        columns=columns, rows=rows, differences=gains, train=place, test=place, settings=settings
    )


@pytest.mark.parametrize(
    "runs", [["run"], ["a", "b", "c"], ["a-run-with-a-rather-long-name" * 2, "b"]]
)
def test_a_table_is_whole_at_eighty_columns_however_many_protocols(runs):
    columns = ["1-shot", "2-shot", "5-shot", "1%", "k-NN", "linear", "linear-fast"]
    stream = io.StringIO()
    print_comparison(invented(runs, columns), Console(file=stream, width=80))
    text = stream.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert text.count("98.8 (95.0\N{EN DASH}99.9)") == len(columns) * (len(runs) + 1)
    assert text.count("-12.3 ±7.5*") == len(columns) * (len(runs) - 1)
    assert all(column in text for column in columns)
    assert "chosen on the test pictures: optimistic" in text


def test_names_in_brackets_are_names():
    stream = io.StringIO()
    record = invented(["exp[lr=0.1]", "[bold]b"], ["1-shot", "[shells]"])
    print_comparison(record, Console(file=stream, width=120))
    for name in ("exp[lr=0.1]", "[bold]b", "[shells]"):
        assert name in stream.getvalue()


def test_an_interval_that_ends_at_all_pictures_is_told_by_its_ends():
    record = invented(["run"], ["1-shot"])
    record["rows"][0]["results"] = {
        "1-shot": record["rows"][0]["results"]["1-shot"] | dict(accuracy=1.0, interval=[0.8, 1.0])
    }
    stream = io.StringIO()
    print_comparison(record, Console(file=stream, width=120))
    assert "100.0 (80.0\N{EN DASH}100.0)" in stream.getvalue()
    assert "±10.0" not in stream.getvalue()
    assert "in brackets both its ends" in explain(record, 400)


@pytest.mark.parametrize("select", ["val", "test"])
def test_a_transfer_chosen_on_the_test_pictures_is_called_optimistic(select, capsys):
    x, labels = torch.randn(60, 4), torch.arange(60) % 3
    sides = [Labelled(x[rows], labels[rows]) for rows in (slice(0, 40), slice(40, 60))]
    found = transfer_features(sides[0], None, sides[1], select=select)
    stream = io.StringIO()
    print_transfer({"run": {"[shells]": found}}, Console(file=stream, width=80))
    assert ("optimistic" in stream.getvalue()) == (select == "test")
    assert "[shells]" in stream.getvalue()


def test_words_are_wrapped_without_tearing_numbers_from_their_signs():
    record = invented(["a", "b"], ["1-shot"])
    for width in range(40, 90):
        lines = explain(record, width).splitlines()
        assert max(map(len, lines)) <= max(width, 75)  # a path is not broken
        assert not any(line.strip().startswith("%") for line in lines)
    assert "differences are paired, * where the interval excludes 0." in explain(record, 200)
    assert "paired" not in explain(invented(["a"], ["1-shot"]), 200)


def test_what_was_chosen_is_told_of_every_encoder_and_once_where_it_is_the_same():
    record = invented(["a", "b", "c"], ["1-shot"])
    how = dict(neighbours_chosen="by leave-one-out")
    for row, k in zip(record["rows"], (10, 100, 10), strict=False):
        row["results"] = row["results"] | {"k-NN": dict(k=k, protocol=how)}
    record["columns"] = ["1-shot", "k-NN"]
    words = explain(record, 400)
    assert "k-NN: k = 10 (a, c); k = 100 (b), chosen by leave-one-out." in words
    record["rows"][1]["results"]["k-NN"]["k"] = 10
    assert "k-NN: k = 10, chosen by leave-one-out." in explain(record, 400)
    assert words.count("1-shot: ") == 1


def test_one_picture_and_one_class_are_told_as_one():
    record = invented(["a"], ["1-shot"])
    assert explain(record, 400).startswith("500 test pictures of 10 classes (")
    record["test"] = record["test"] | dict(pictures=1, classes=1)
    assert explain(record, 400).startswith("1 test picture of 1 class (")


def test_the_hardest_classes_are_told_and_nothing_when_nothing_is_confused(task, measured):
    found = details(measured[0][1], task)
    words = explain_confused(found, "ours", width=200)
    worst = min(found["classes"], key=lambda one: one["accuracy"])
    share = f"{100 * worst['accuracy']:.0f} %"
    assert f"Hardest classes for ours, 2-shot: {worst['name']} ({share})" in words
    pair = found["confused"][0]
    assert f"Most confused: {pair['true']} as {pair['predicted']} (" in words
    assert explain_confused(found | dict(confused=[]), "ours") == ""
