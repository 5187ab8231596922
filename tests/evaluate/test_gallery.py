"""Neighbours against a loop in float64, attention against its formula, pictures against pixels."""

import base64
import io
import json
import math

import numpy as np
import pytest
import torch
from PIL import Image

from wessl.config import EncoderConfig
from wessl.data.cache.build import build_cache
from wessl.data.sources.open import open_source
from wessl.evaluate.features.trained_encoder import TrainedEncoder, extract
from wessl.evaluate.gallery import gallery
from wessl.run import build_encoder
from wessl.settings import to_dict

VIT = EncoderConfig(kind="vit", dim=24, depth=2, heads=3, patch_size=4, image_size=24)
CONV = EncoderConfig(kind="conv", widths=(4, 8), image_size=8)


def encoder(config, channels, seed=0):
    torch.manual_seed(seed)
    network = build_encoder(config, channels)
    for parameter in network.parameters():  # fresh ones are too small to look anywhere
        torch.nn.init.normal_(parameter, std=0.3)
    side = config.image_size
    size = dict(encoder=to_dict(config), channels=channels, image_size=side, resize=side)
    return TrainedEncoder(network, size | dict(mean=[0.5] * channels, std=[0.25] * channels))


def cached(folder, images, **arrays):
    np.savez(folder / "pictures.npz", images=images, **arrays)
    return build_cache(open_source(folder / "pictures.npz"), None, folder / "cache", workers=0)


def random_pictures(n, side=24, channels=3):
    shape = (n, side, side, channels)
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def decode(uri):
    head, data = uri.split(",")
    assert head in ("data:image/png;base64", "data:image/jpeg;base64")
    return Image.open(io.BytesIO(base64.b64decode(data)))


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    source = open_source("builtin://digits/test")
    return build_cache(source, None, tmp_path_factory.mktemp("cache"), workers=0)


def test_neighbours_are_the_nearest_by_a_plain_loop(digits):
    conv = encoder(CONV, 1)
    found = gallery(conv, digits)
    features = extract(conv, digits).double().numpy()
    lengths = np.linalg.norm(features, axis=1)
    assert len(found["samples"]) == 12
    for sample in found["samples"]:
        i = sample["index"]
        cosines = [
            (features[i] @ f) / (lengths[i] * n) for f, n in zip(features, lengths, strict=True)
        ]
        others = sorted((j for j in range(len(features)) if j != i), key=lambda j: -cosines[j])
        assert [near["index"] for near in sample["neighbours"]] == others[:6]
        np.testing.assert_allclose(
            [near["similarity"] for near in sample["neighbours"]],
            [cosines[j] for j in others[:6]],
            atol=1e-6,
        )


def test_labels_and_the_share_that_agrees(digits):
    conv = encoder(CONV, 1)
    found = gallery(conv, digits)
    labels = digits.labels.tolist()
    assert [s["label"] for s in found["samples"][:10]] == [str(i) for i in range(10)]
    assert all(s["label"] == str(labels[s["index"]]) for s in found["samples"])
    features = torch.nn.functional.normalize(extract(conv, digits).double(), dim=1)
    same = []
    for i, row in enumerate(features @ features.T):
        nearest = [j for j in row.argsort(descending=True).tolist() if j != i][:6]
        same += [labels[j] == labels[i] for j in nearest]
    assert found["same_label"] == pytest.approx(np.mean(same))
    pairs = [(a == b) for i, a in enumerate(labels) for j, b in enumerate(labels) if i != j]
    assert found["chance"] == pytest.approx(np.mean(pairs))


def test_thumbnails_are_the_pictures(digits):
    for sample in gallery(encoder(CONV, 1), digits)["samples"]:
        shown = np.array(decode(sample["thumbnail"]))
        np.testing.assert_array_equal(shown, digits.picture(sample["index"])[..., 0])


def test_a_convolutional_encoder_has_no_attention(digits):
    found = gallery(encoder(CONV, 1), digits, most=50)
    assert found["attention"] is None
    assert (found["searched"], found["pictures"]) == (50, len(digits))


def attention_by_loop(vit, image):
    """What ``[CLS]`` gives each patch in the last block, ``(heads, patches)``, one head a time."""
    seen, last = [], vit.blocks[-1]
    hook = last.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    with torch.no_grad():
        vit(image[None])
    hook.remove()
    x = seen[0][0].double().numpy()
    weights = {name: tensor.double().numpy() for name, tensor in last.state_dict().items()}
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6)
    x = x * weights["norm1.weight"] + weights["norm1.bias"]
    tokens = x @ weights["attn.qkv.weight"].T + weights["attn.qkv.bias"]
    width = vit.dim // vit.heads
    rows = []
    for h in range(vit.heads):
        q, k = (tokens[:, p * vit.dim + h * width :][:, :width] for p in (0, 1))
        scores = [float(q[0] @ key) / math.sqrt(width) for key in k]
        powers = np.exp(np.array(scores) - max(scores))
        rows.append((powers / powers.sum())[1:])
    return np.array(rows)


def test_attention_maps_follow_the_formula(tmp_path):
    cache, transformer = cached(tmp_path, random_pictures(9)), encoder(VIT, 3)
    found = gallery(transformer, cache, looks=4)["attention"]
    assert (found["grid"], found["block"], len(found["samples"])) == ([6, 6], 2, 4)
    for sample in found["samples"]:
        image = transformer.prepare(cache.batch(torch.tensor([sample["index"]])))[0]
        maps = attention_by_loop(transformer.encoder, image).reshape(3, 6, 6)
        for uri, expected in zip(
            [sample["mean"], *sample["heads"]], [maps.mean(0), *maps], strict=True
        ):
            drawn = np.array(decode(uri).convert("RGB")).astype(float)
            assert drawn.shape == (6, 6, 3)
            light = drawn @ [0.299, 0.587, 0.114]
            order = np.argsort(expected, axis=None)
            assert (np.diff(light.ravel()[order]) >= -2).all()  # brighter is more, but for rounding
            assert np.ptp(light) > 150  # from its own least to its own most
        shown = np.array(decode(sample["thumbnail"]))
        assert np.abs(shown.astype(int) - cache.picture(sample["index"]).numpy()).max() <= 1


def test_without_labels_samples_are_spread_and_nothing_is_counted(tmp_path):
    found = gallery(encoder(VIT, 3), cached(tmp_path, random_pictures(30)), samples=3)
    assert [s["index"] for s in found["samples"]] == [0, 14, 29]
    assert all(s["label"] is None for s in found["samples"])
    assert found["same_label"] is found["chance"] is None


@pytest.mark.parametrize(("side", "channels"), [(24, 1), (100, 3), (40, 5), (40, 2)])
def test_thumbnails_fit_whatever_the_size_and_channels(tmp_path, side, channels):
    cache = cached(tmp_path, random_pictures(4, side, channels))
    found = gallery(encoder(VIT, channels), cache)
    image = decode(found["samples"][0]["thumbnail"])
    assert max(image.size) == min(side, 64)
    assert image.mode == ("RGB" if channels >= 3 else "L")


def test_a_single_picture_has_no_neighbours(tmp_path):
    found = gallery(encoder(VIT, 3), cached(tmp_path, random_pictures(1), labels=np.array([0])))
    assert [len(sample["neighbours"]) for sample in found["samples"]] == [0]
    assert found["same_label"] is None


def test_it_is_plain_strict_json_of_a_modest_size(tmp_path):
    found = gallery(encoder(VIT, 3), cached(tmp_path, random_pictures(40, 100)))
    assert len(json.dumps(found, allow_nan=False)) < 700_000
    assert found["kind"] == "gallery"
