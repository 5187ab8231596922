"""Hugging Face's folder, loaded by the real transformers."""

import numpy as np
import pytest
import torch
from exported_runs import TINY, run_folder
from PIL import Image
from safetensors.torch import load_file
from transformers import AutoImageProcessor, AutoModel, ViTForImageClassification, ViTModel

import wessl
from wessl.encoder.convert import convert


@pytest.fixture(scope="module", params=[3, 1], ids=["colour", "grey"])
def both(request, tmp_path_factory):
    """Our encoder, the exported folder, and transformers' model of it."""
    run = run_folder(tmp_path_factory.mktemp("runs") / "run", TINY, request.param, resize=37)
    folder = wessl.export(run, "hf")
    model, told = AutoModel.from_pretrained(folder, output_loading_info=True)
    return wessl.load(run.path), folder, model.eval(), told


def images(encoder, b, height, width):
    return torch.randn(b, encoder.description["channels"], height, width)


def test_automodel_finds_every_tensor_and_makes_up_none(both):
    _, _, model, told = both
    assert isinstance(model, ViTModel)
    assert {kind: list(names) for kind, names in told.items() if names} == {}


@torch.no_grad()
def test_hidden_states_are_equal(both):
    encoder, _, model, _ = both
    x = images(encoder, 3, 32, 32)
    theirs, ours = model(x), encoder(x)
    assert ours.std() > 0.1
    assert torch.allclose(theirs.last_hidden_state, ours, atol=1e-4)
    assert torch.allclose(theirs.last_hidden_state[:, 0], encoder.cls(x), atol=1e-4)
    assert torch.allclose(theirs.pooler_output, encoder.cls(x), atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("size", [(64, 64), (40, 24), (16, 72)])
def test_hidden_states_are_equal_at_other_sizes(both, size):
    encoder, _, model, _ = both
    x = images(encoder, 2, *size)
    theirs = model(x, interpolate_pos_encoding=True).last_hidden_state
    assert torch.allclose(theirs, encoder(x), atol=1e-4)


def test_the_norms_add_what_ours_do(both):
    assert both[2].config.layer_norm_eps == 1e-6


@torch.no_grad()
def test_the_processor_resizes_crops_and_normalises_as_we_do(both):
    encoder, folder, model, _ = both
    channels = encoder.description["channels"]
    smooth = Image.fromarray(np.random.default_rng(0).integers(0, 255, (6, 8, 3), dtype=np.uint8))
    large = smooth.resize((80, 60), Image.Resampling.BICUBIC)
    picture = large if channels == 3 else large.convert("L")
    processor = AutoImageProcessor.from_pretrained(folder)
    prepared = processor(picture, return_tensors="pt")["pixel_values"]
    assert prepared.shape == (1, channels, 32, 32)
    ours = encoder.prepare(encoder._batch([picture]))
    levels = (prepared - ours).abs().max() * min(encoder.description["std"]) * 255
    assert levels < 2  # theirs rounds to whole levels after the resize
    theirs = model(pixel_values=prepared).last_hidden_state[:, 0]
    likeness = torch.cosine_similarity(theirs, encoder.embed([picture]))
    assert likeness > 0.999


def test_our_reader_gives_back_the_identical_encoder(both):
    encoder, folder, _, _ = both
    state = convert(load_file(folder / "model.safetensors"), heads=4).state
    for name, tensor in encoder.encoder.state_dict().items():
        assert torch.equal(state[name], tensor), name
    pictures = torch.randint(
        0, 255, (3, 50, 40, encoder.description["channels"]), dtype=torch.uint8
    )
    for place in (folder, folder / "model.safetensors"):
        back = wessl.load(place)
        assert back.description["resize"] == 37
        assert torch.equal(back.embed(pictures), encoder.embed(pictures))


@torch.no_grad()
def test_a_classifier_starts_from_the_encoder(both):
    encoder, folder, _, _ = both
    model, told = ViTForImageClassification.from_pretrained(
        folder, num_labels=5, output_loading_info=True
    )
    assert set(told["missing_keys"]) == {"classifier.weight", "classifier.bias"}
    x = images(encoder, 2, 32, 32)
    assert torch.allclose(model.eval().vit(x).last_hidden_state, encoder(x), atol=1e-4)


def test_a_vit_of_the_paper_has_transformers_own_shapes(tmp_path):
    folder = wessl.export(run_folder(tmp_path / "run", dict(size="S"), resize=256), "hf")
    model, told = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not any(told.values())
    assert (model.config.hidden_size, model.config.num_attention_heads) == (384, 6)
    x = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        ours = wessl.load(tmp_path / "run")(x)
        assert torch.allclose(model.eval()(x).last_hidden_state, ours, atol=1e-4)
