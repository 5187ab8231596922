"""The ONNX graph, run by the real onnxruntime at sizes its recording has not seen."""

import json

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from exported_runs import CONV, TINY, run_folder

import wessl
from wessl.export.graph import bicubic_matrix, pool_matrix

KINDS = {
    "vit": (TINY, 3, False),
    "odd grey vit, normalised": (TINY | dict(image_size=44, patch_size=7), 1, True),
    "conv": (CONV, 3, False),
}


@pytest.fixture(scope="module", params=KINDS, ids=str)
def both(request, tmp_path_factory):
    """Our encoder, and onnxruntime's function from images to named outputs."""
    encoder, channels, normalise = KINDS[request.param]
    run = run_folder(tmp_path_factory.mktemp("runs") / "run", encoder, channels)
    folder = wessl.export(run, "onnx", normalise=normalise)
    session = onnxruntime.InferenceSession(folder / "encoder.onnx")
    return wessl.load(run.path), session, folder, normalise


def tokens(encoder, images, normalise):
    said = encoder.description
    mean, std = (torch.tensor(said[key]).view(-1, 1, 1) for key in ("mean", "std"))
    with torch.no_grad():
        return encoder((images - mean) / std if normalise else images)


@pytest.mark.parametrize(
    ("b", "height", "width"),
    [
        (1, 32, 32),
        (2, 44, 44),
        (5, 32, 32),
        (3, 64, 64),
        (1, 96, 40),
        (2, 17, 83),
        (4, 8, 8),
        (1, 8, 61),
    ],
)
def test_features_are_equal_at_any_batch_and_size(both, b, height, width):
    encoder, session, _, normalise = both
    images = torch.rand(b, encoder.description["channels"], height, width)
    ours = tokens(encoder, images, normalise)
    cls, patches = session.run(["cls", "patches"], {"images": images.numpy()})
    assert (cls.shape, patches.shape) == (ours[:, 0].shape, ours[:, 1:].shape)
    assert ours.std() > 0.1
    np.testing.assert_allclose(cls, ours[:, 0], atol=1e-4)
    np.testing.assert_allclose(patches, ours[:, 1:], atol=1e-4)


def test_the_file_is_whole_named_and_dynamic(both):
    encoder, session, folder, normalise = both
    assert sorted(path.name for path in folder.glob("[!.]*")) == ["README.md", "encoder.onnx"]
    model = onnx.load(folder / "encoder.onnx", load_external_data=False)
    onnx.checker.check_model(model, full_check=True)
    assert next(o.version for o in model.opset_import if not o.domain) == 18
    (given,) = session.get_inputs()
    channels = encoder.description["channels"]
    assert (given.name, given.shape) == ("images", ["batch", channels, "height", "width"])
    assert [(o.name, o.shape[0], o.shape[-1]) for o in session.get_outputs()] == [
        ("cls", "batch", encoder.dim), ("patches", "batch", encoder.dim),
    ]  # fmt: skip
    kept = {
        p.key: json.loads(p.value)
        for p in model.metadata_props
        if p.key in ("mean", "normalised_inside")
    }
    assert kept == dict(mean=encoder.description["mean"], normalised_inside=normalise)


def test_the_card_says_what_goes_in(both):
    _, _, folder, normalise = both
    text = (folder / "README.md").read_text()
    assert "operator set 18" in text
    assert ("normalised inside" in text) == normalise
    assert ("the model itself then normalises" in text) == normalise
    assert "features equal torch's" in text


@pytest.mark.parametrize("inputs", [1, 2, 5, 14])
@pytest.mark.parametrize("outputs", [1, 2, 3, 5, 14, 37])
def test_the_positions_matrix_is_torchs_bicubic(inputs, outputs):
    lines = torch.randn(1, 3, inputs, 1)
    wanted = F.interpolate(lines, (outputs, 1), mode="bicubic", align_corners=False)
    assert torch.allclose(bicubic_matrix(inputs, outputs) @ lines, wanted, atol=1e-5)


@pytest.mark.parametrize("inputs", [1, 2, 3, 4, 5, 8, 13])
def test_the_pool_matrix_is_torchs_adaptive_pool(inputs):
    lines = torch.randn(1, 3, inputs, 1)
    wanted = F.adaptive_avg_pool2d(lines, (4, 1))
    assert torch.allclose(pool_matrix(inputs, 4) @ lines, wanted, atol=1e-6)
