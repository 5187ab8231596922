"""timm's file: its names and shapes everywhere, and timm itself where it can be imported."""

import json
import math

import pytest
import torch
from exported_runs import CONV, TINY, run_folder
from safetensors.torch import load_file

import wessl
from wessl.export.timm import timm_model

# Every tensor of timm's vit_small_patch16_224 with num_classes=0.
AROUND = {
    "cls_token": (1, 1, 384),
    "pos_embed": (1, 197, 384),
    "patch_embed.proj.weight": (384, 3, 16, 16),
    "patch_embed.proj.bias": (384,),
    "norm.weight": (384,),
    "norm.bias": (384,),
}
BLOCK = {
    "norm1.weight": (384,),
    "norm1.bias": (384,),
    "attn.qkv.weight": (1152, 384),
    "attn.qkv.bias": (1152,),
    "attn.proj.weight": (384, 384),
    "attn.proj.bias": (384,),
    "norm2.weight": (384,),
    "norm2.bias": (384,),
    "mlp.fc1.weight": (1536, 384),
    "mlp.fc1.bias": (1536,),
    "mlp.fc2.weight": (384, 1536),
    "mlp.fc2.bias": (384,),
}
VIT_SMALL = AROUND | {f"blocks.{i}.{n}": s for i in range(12) for n, s in BLOCK.items()}


def test_a_vit_small_has_every_tensor_of_timms_model_and_no_other(tmp_path):
    run = run_folder(tmp_path / "run", dict(size="S"), resize=256)
    folder = wessl.export(run, "timm")
    assert folder == tmp_path / "run" / "export" / "timm"
    names = ["README.md", "config.json", "vit_small_patch16_224.safetensors"]
    assert sorted(path.name for path in folder.glob("[!.]*")) == names
    tensors = load_file(folder / names[-1])
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == VIT_SMALL
    assert all(tensor.dtype == torch.float32 for tensor in tensors.values())


def test_the_weights_are_the_runs_to_the_last_bit(tmp_path):
    run = run_folder(tmp_path / "run")
    folder = wessl.export(run, "timm")
    ours, theirs = run.load_encoder()[0], load_file(folder / "vit_tiny_patch16_224.safetensors")
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize(
    ("vit", "side", "name", "keywords"),
    [
        (dict(size="T"), 224, "vit_tiny_patch16_224", {}),
        (dict(size="B", patch_size=8), 224, "vit_base_patch8_224", {}),
        (dict(size="L", patch_size=14), 224, "vit_large_patch14_224", {}),
        (dict(dim=384, depth=12, heads=6), 224, "vit_small_patch16_224", {}),
        (dict(size="S", image_size=96), 96, "vit_small_patch16_224", dict(img_size=96)),
        (
            dict(size="T", patch_size=8, image_size=64, in_channels=1), 64,
            "vit_tiny_patch16_224", dict(patch_size=8, img_size=64, in_chans=1),
        ),
        (
            dict(dim=48, depth=2, heads=4), 224,
            "vit_tiny_patch16_224", dict(embed_dim=48, depth=2, num_heads=4),
        ),
    ],
)  # fmt: skip
def test_the_model_and_its_keywords_are_timms(vit, side, name, keywords):
    with torch.device("meta"):
        assert timm_model(wessl.ViT(**vit), side) == (name, keywords)


def test_the_card_says_the_model_and_its_keywords(tmp_path):
    folder = wessl.export(run_folder(tmp_path / "run", channels=1), "timm", tmp_path / "out")
    call = (
        'timm.create_model("vit_tiny_patch16_224", embed_dim=48, depth=2, num_heads=4, '
        "patch_size=8, img_size=32, in_chans=1, num_classes=0, "
        "checkpoint_path='vit_tiny_patch16_224.safetensors')"
    )
    text = (folder / "README.md").read_text()
    assert call in text
    assert "reset_classifier" in text


@pytest.mark.parametrize(("side", "resize"), [(224, 256), (96, 110), (32, 32), (64, 73), (48, 55)])
def test_timms_crop_share_gives_back_our_resize(tmp_path, side, resize):
    run = run_folder(tmp_path / "run", TINY | dict(image_size=side), resize=resize)
    told = json.loads((wessl.export(run, "timm") / "config.json").read_text())
    assert math.floor(side / told["pretrained_cfg"]["crop_pct"]) == resize


def test_wessl_loads_the_export_as_the_encoder_it_was(tmp_path):
    run = run_folder(tmp_path / "run", channels=1, resize=37)
    back, ours = wessl.load(wessl.export(run, "timm")), wessl.load(run.path)
    pictures = torch.randint(0, 255, (3, 50, 40, 1), dtype=torch.uint8)
    assert torch.equal(back.embed(pictures), ours.embed(pictures))


def test_a_convolutional_encoder_is_refused_with_what_to_do(tmp_path):
    run = run_folder(tmp_path / "run", CONV)
    for to in ("timm", "hf"):
        with pytest.raises(
            wessl.UserError, match=rf"--to {to}: .* ConvNet.*use --to onnx.*kind vit"
        ):
            wessl.export(run, to)
    assert not (run.path / "export").exists()


@pytest.mark.parametrize(("vit", "channels"), [(TINY, 3), (TINY, 1), (dict(size="T"), 3)])
def test_timm_itself_computes_the_same_features(tmp_path, vit, channels):
    timm = pytest.importorskip("timm")
    run = run_folder(tmp_path / "run", vit, channels)
    folder = wessl.export(run, "timm")
    ours = wessl.load(run.path)
    name, keywords = timm_model(ours.encoder, vit.get("image_size", 224))
    weights = str(folder / f"{name}.safetensors")
    given = timm.create_model(name, **keywords, num_classes=0, checkpoint_path=weights).eval()
    models = [given]
    if tuple(map(int, timm.__version__.split(".")[:3])) >= (1, 0, 16):
        models.append(timm.create_model(f"local-dir:{folder}", pretrained=True).eval())
    images = torch.randn(2, channels, vit.get("image_size", 224), vit.get("image_size", 224))
    with torch.no_grad():
        for model in models:
            assert torch.allclose(model.forward_features(images), ours(images), atol=1e-4)
            assert torch.allclose(model(images), ours.cls(images), atol=1e-4)
