"""Training and measuring from weights that others saved, named as their public files name them."""

import argparse

import pytest
import torch
from safetensors.torch import load_file, save_file
from small_runs import command, photographs, tiny

import wessl
from wessl.encoder.vit import ViT
from wessl.errors import UserError

WIDE = dict(dim=128, depth=2, heads=2, patch_size=8, image_size=32)
WIDE_SETTINGS = {f"encoder.{k}": WIDE[k] for k in ("dim", "depth", "heads", "patch_size")}
SETTINGS = {k: v for k, v in tiny().items() if not k.startswith("encoder.")}
STILL = SETTINGS | {"lr": 0.0, "min_lr": 0.0, "weight_decay": 0.0, "weight_decay_end": 0.0}


def vit(**shape):
    torch.manual_seed(0)
    return dict(ViT(**WIDE | shape).state_dict())


def prefixed(state, prefix):
    return {prefix + name: tensor for name, tensor in state.items()}


def dino(path):
    head = {f"head.{n}": torch.ones(2, 2) for n in ("mlp.0.weight", "mlp.2.weight", "mlp.4.weight")}
    teacher = prefixed(vit(), "backbone.") | head | {"head.last_layer.weight_v": torch.ones(9, 2)}
    bag = argparse.Namespace(arch="vit_small", patch_size=8)
    whole = dict(student=prefixed(teacher, "module."), teacher=teacher, epoch=100, args=bag)
    torch.save(whole | dict(optimizer={"state": {0: {"exp_avg": torch.ones(1)}}}), path)


def dinov2(path):
    scales = {f"blocks.{i}.ls{j}.gamma": torch.full((128,), 0.5) for i in (0, 1) for j in (1, 2)}
    torch.save(vit() | scales | {"mask_token": torch.zeros(1, 128)}, path)


def msn(path):
    head = {"fc.fc1.weight": torch.ones(8, 128), "fc.bn1.running_mean": torch.zeros(8)}
    state = prefixed(vit() | head, "module.")
    prototypes = torch.zeros(5, 8)
    torch.save(dict(encoder=state, target_encoder=state, prototypes=prototypes, opt={}), path)


def timm(path):
    classifier = {"head.weight": torch.ones(10, 128), "head.bias": torch.ones(10)}
    save_file(vit() | classifier, path)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WESSL_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("write", "name", "left_out"),
    [
        (dino, "dino.pth", ["student (another network", "optimizer (training state", "head.mlp.0"]),
        (dinov2, "dinov2.pth", ["mask_token (stands for masked", "layer scale is folded"]),
        (msn, "msn.pth", ["encoder (another network", "prototypes", "fc1.weight, module.fc.bn1"]),
        (timm, "timm.safetensors", ["head.bias, head.weight (head or classifier)"]),
    ],
)
def test_a_training_takes_over_the_encoder_and_names_what_it_leaves(
    tmp_path, write, name, left_out
):
    write(tmp_path / name)
    photos = photographs(tmp_path / "photos")
    run = wessl.pretrain(photos, tmp_path / "run", **STILL, init=str(tmp_path / name))
    said = (run.path / "train.log").read_text()
    for words in [*left_out, "ViT 128 wide, 2 blocks, 2 heads, patches of 8", "is assumed: 2"]:
        assert words in said
    # Nothing was learnt at a rate of 0, so what came out is what went in.
    foreign, ours = wessl.load(tmp_path / name), load_file(run.path / "encoder.safetensors")
    for key, tensor in foreign.encoder.state_dict().items():
        torch.testing.assert_close(ours[key], tensor, rtol=1e-5, atol=1e-6)


def test_views_follow_the_pictures_and_not_the_size_that_weights_were_made_for(tmp_path):
    save_file(vit(image_size=48), tmp_path / "timm.safetensors")
    photos, weights = photographs(tmp_path / "photos"), str(tmp_path / "timm.safetensors")
    plain = wessl.pretrain(photos, tmp_path / "plain", **SETTINGS | WIDE_SETTINGS)
    begun = wessl.pretrain(photos, tmp_path / "begun", **SETTINGS, init=weights)
    configs = [run.read_config()["config"] for run in (plain, begun)]
    assert configs[0]["views"] == configs[1]["views"]
    assert configs[1]["encoder"]["image_size"] == 48


def test_the_number_of_heads_is_asked_for_where_no_file_tells_it(tmp_path):
    torch.save(vit(dim=48, heads=4), tmp_path / "odd.pth")
    photos = photographs(tmp_path / "photos")
    call = dict(init=str(tmp_path / "odd.pth")) | SETTINGS
    with pytest.raises(UserError, match=r"48 wide.*num_attention_heads.*--encoder\.heads"):
        wessl.pretrain(photos, tmp_path / "run", **call)
    run = wessl.pretrain(photos, tmp_path / "run", **call, **{"encoder.heads": 4})
    assert wessl.load(run.path).description["encoder"]["heads"] == 4
    (tmp_path / "config.json").write_text('{"num_attention_heads": 3}')
    assert wessl.load(tmp_path / "odd.pth").description["encoder"]["heads"] == 3


def test_weights_for_colour_read_grey_pictures_as_colour_and_keep_their_normalisation(tmp_path):
    timm(tmp_path / "timm.safetensors")
    (tmp_path / "preprocessor_config.json").write_text(
        '{"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}'
    )
    weights = str(tmp_path / "timm.safetensors")
    run = wessl.pretrain("builtin://digits/test", tmp_path / "run", **SETTINGS, init=weights)
    told = wessl.load(run.path).description
    assert (told["channels"], told["mean"], told["std"]) == (3, [0.5] * 3, [0.5] * 3)


def test_a_run_from_given_weights_resumes_with_and_without_naming_them(tmp_path):
    dino(tmp_path / "dino.pth")
    photos = photographs(tmp_path / "photos")
    run = wessl.pretrain(photos, tmp_path / "run", **SETTINGS, init=str(tmp_path / "dino.pth"))
    before = load_file(run.path / "encoder.safetensors")
    for more in (dict(init=str(tmp_path / "dino.pth")), dict(), dict(seed=0)):
        wessl.pretrain(photos, tmp_path / "run", **SETTINGS, **more)
    after = load_file(run.path / "encoder.safetensors")
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_registers_are_refused_before_anything_is_written(tmp_path):
    torch.save(vit() | {"register_tokens": torch.zeros(1, 4, 128)}, tmp_path / "reg.pth")
    photos = photographs(tmp_path / "photos")
    words = ["pretrain", photos, "--out", tmp_path / "run", "--init", tmp_path / "reg.pth"]
    code, _, complaint = command(*words)
    assert code == 2
    assert "register tokens, which our ViT does not have" in complaint
    assert not (tmp_path / "run").exists()


def test_a_comparison_names_what_it_does_not_use(tmp_path):
    dino(tmp_path / "dino.pth")
    photos = photographs(tmp_path / "photos")
    run = wessl.pretrain(photos, tmp_path / "run", **tiny())
    found = wessl.evaluate(
        run, photos, also=tmp_path / "dino.pth", protocols=["1shot", "knn"], draws=1, device="cpu"
    )
    said = "\n".join(found["notes"])
    assert "dino.pth: not used: optimizer (training state (1 tensor))" in said
    assert "head.mlp.0.weight, head.mlp.2.weight, head.mlp.4.weight and 1 more" in said
    assert [row["name"] for row in found["rows"][:2]] == ["run", "dino.pth"]
    assert found["columns"] == ["1-shot", "k-NN"]
