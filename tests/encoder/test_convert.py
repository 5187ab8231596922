"""Our own ViT, renamed here as others would have saved it, must come back with its features."""

import pytest
import torch

from wessl.encoder.convert import UnknownHeads, convert
from wessl.encoder.vit import ViT

SHAPE = dict(dim=128, depth=3, heads=2, patch_size=4, image_size=16)


@pytest.fixture(scope="module")
def vit() -> ViT:
    torch.manual_seed(0)
    model = ViT(**SHAPE).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms too must matter
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.fixture
def own(vit) -> dict:
    return dict(vit.state_dict())


def features(found, vit, side=16):
    """Tokens of the converted and of the original model, on the same pictures."""
    model = ViT(
        dim=found.dim,
        depth=found.depth,
        heads=found.heads,
        patch_size=found.patch_size,
        image_size=found.image_size,
        in_channels=found.channels,
    ).eval()
    model.load_state_dict(found.state)
    pictures = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        return model(pictures), vit(pictures)


def prefixed(state, prefix):
    return {prefix + name: tensor for name, tensor in state.items()}


def dino_head(prefix=""):
    sizes = {"mlp.0.weight": (8, 128), "mlp.0.bias": (8,), "last_layer.weight_v": (9, 8)}
    return {f"{prefix}head.{name}": torch.ones(size) for name, size in sizes.items()}


def zeros_like(state):
    return {name: torch.zeros_like(tensor) for name, tensor in state.items()}


def hugging_face(state, dim=128):
    """By a table of whole names, block by block, unlike the patterns under test."""
    new = {
        "embeddings.cls_token": state["cls_token"],
        "embeddings.position_embeddings": state["pos_embed"],
    }
    for end in ("weight", "bias"):
        new[f"embeddings.patch_embeddings.projection.{end}"] = state[f"patch_embed.proj.{end}"]
        new[f"layernorm.{end}"] = state[f"norm.{end}"]
        for i in range(3):
            there, here = f"encoder.layer.{i}", f"blocks.{i}"
            qkv = state[f"{here}.attn.qkv.{end}"]
            for j, part in enumerate(("query", "key", "value")):
                new[f"{there}.attention.attention.{part}.{end}"] = qkv[j * dim : (j + 1) * dim]
            new[f"{there}.attention.output.dense.{end}"] = state[f"{here}.attn.proj.{end}"]
            new[f"{there}.intermediate.dense.{end}"] = state[f"{here}.mlp.fc1.{end}"]
            new[f"{there}.output.dense.{end}"] = state[f"{here}.mlp.fc2.{end}"]
            new[f"{there}.layernorm_before.{end}"] = state[f"{here}.norm1.{end}"]
            new[f"{there}.layernorm_after.{end}"] = state[f"{here}.norm2.{end}"]
    return new


def test_a_plain_backbone_comes_back_as_it_is(own, vit):
    found = convert(own)
    assert found.left_out == {}
    assert {name: getattr(found, name) for name in SHAPE} == SHAPE
    converted, original = features(found, vit)
    assert torch.equal(converted, original)


@pytest.mark.parametrize("which", ["teacher", "student"])
def test_a_whole_dino_checkpoint_gives_the_network_asked_for(own, vit, which):
    other = "student" if which == "teacher" else "teacher"
    prefix = {"teacher": "backbone.", "student": "module.backbone."}
    outer = {"teacher": "", "student": "module."}
    checkpoint = {
        which: prefixed(own, prefix[which]) | dino_head(outer[which]),
        other: prefixed(zeros_like(own), prefix[other]),
        "optimizer": {"state": {0: {"exp_avg": torch.zeros(3)}}, "param_groups": [{"lr": 1.0}]},
        "dino_loss": {"center": torch.zeros(1, 9)},
        "epoch": 800,
    }
    found = convert(checkpoint, which)
    converted, original = features(found, vit)
    assert torch.equal(converted, original)
    assert found.left_out[other] == f"another network ({len(own)} tensors)"
    assert found.left_out["optimizer"] == "training state (1 tensor)"
    assert set(found.left_out) == {other, "optimizer", "dino_loss", *dino_head(outer[which])}
    assert f"the network is `{which}`" in found.notes


def test_an_msn_checkpoint_gives_the_target_encoder_without_its_head(own, vit):
    head = {
        "fc.fc1.weight": torch.ones(8, 128),
        "fc.bn1.running_mean": torch.zeros(8),
        "fc.bn1.num_batches_tracked": torch.tensor(4),
    }
    checkpoint = {
        "encoder": prefixed(zeros_like(own) | head, "module."),
        "target_encoder": prefixed(own | head, "module."),
        "prototypes": torch.zeros(5, 8),
        "opt": {"state": {}},
        "epoch": 3,
    }
    found = convert(checkpoint)
    assert torch.equal(*features(found, vit))
    assert found.left_out["module.fc.fc1.weight"] == "head or classifier"
    assert set(found.left_out) == {"encoder", "prototypes", *prefixed(head, "module.")}
    anchors = convert(checkpoint, "student").state
    assert all((tensor == 0).all() for tensor in anchors.values())
    alone = {"encoder": checkpoint["encoder"], "target_encoder": None}
    with pytest.raises(ValueError, match="holds no teacher, only `encoder`; ask for the student"):
        convert(alone)


@pytest.mark.parametrize("wrapper", [None, "state_dict", "model"])
def test_timms_classifier_is_left_out_however_wrapped(own, vit, wrapper):
    classifier = {"head.weight": torch.ones(10, 128), "fc_norm.weight": torch.ones(128)}
    state = own | classifier
    found = convert(state if wrapper is None else {wrapper: state, "arch": "vit"})
    assert torch.equal(*features(found, vit))
    assert set(found.left_out) == set(classifier)


def test_timms_average_is_its_teacher(own, vit):
    checkpoint = {"state_dict": zeros_like(own), "state_dict_ema": own}
    assert torch.equal(*features(convert(checkpoint), vit))
    assert (convert(checkpoint, "student").state["cls_token"] == 0).all()


def test_our_own_checkpoint_gives_its_encoder(own, vit):
    model = prefixed(own, "encoder.") | {"heads.codebook": torch.zeros(2, 3)}
    found = convert({"step": 1, "teacher": model, "student": model})
    assert torch.equal(*features(found, vit))
    assert list(found.left_out) == ["student", "heads.codebook"]


def test_of_two_networks_under_one_roof_the_prefix_tells_which(own, vit):
    state = prefixed(own, "momentum_backbone.") | prefixed(zeros_like(own), "backbone.")
    found = convert({"state_dict": state})
    assert torch.equal(*features(found, vit))
    assert len(found.left_out) == len(own)
    with pytest.raises(ValueError, match=r"holds 2 ViTs, at a\., b\.; keep one"):
        convert(prefixed(own, "a.") | prefixed(own, "b."))


@pytest.mark.parametrize("prefix", ["", "vit."])
def test_hugging_faces_separate_attention_is_joined(own, vit, prefix):
    others = {
        prefix + "pooler.dense.weight": torch.ones(128, 128),
        "classifier.bias": torch.ones(9),
    }
    found = convert(prefixed(hugging_face(own), prefix) | others)
    assert torch.equal(*features(found, vit))
    assert set(found.left_out) == set(others)
    assert any("1e-12" in note for note in found.notes)


def test_the_norms_of_hugging_face_differ_by_rounding_only(own, vit):
    converted, _ = features(convert(hugging_face(own)), vit)
    theirs = ViT(**SHAPE).eval()
    theirs.load_state_dict(own)
    for module in theirs.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-12
    pictures = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    assert (theirs(pictures) - converted).abs().max() < 2e-4


def with_layer_scale(state, names):
    """The same function with a scale taken out of each branch, and those scales."""
    scaled = dict(state)
    for i in range(3):
        for name, last in zip(names, ("attn.proj", "mlp.fc2"), strict=True):
            gamma = 0.5 + torch.rand(128)
            scaled[f"blocks.{i}.{name}"] = gamma
            for end in ("weight", "bias"):
                tensor = state[f"blocks.{i}.{last}.{end}"]
                scaled[f"blocks.{i}.{last}.{end}"] = tensor / gamma.view(
                    -1, *[1] * (tensor.ndim - 1)
                )
    return scaled


@pytest.mark.parametrize("names", [("ls1.gamma", "ls2.gamma"), ("gamma_1", "gamma_2")])
@pytest.mark.parametrize("chunked", [False, True])
def test_layer_scale_is_folded_exactly(own, vit, names, chunked):
    state = with_layer_scale(own, names) | {"mask_token": torch.ones(1, 128)}
    if chunked:  # two blocks in the first chunk, the third in the second, under its own number
        state = {
            name.replace("blocks.2.", "blocks.1.2.")
            if name.startswith("blocks.2.")
            else name.replace("blocks.", "blocks.0."): tensor
            for name, tensor in state.items()
        }
    found = convert({"teacher": prefixed(state, "backbone.")})
    for name, tensor in own.items():
        torch.testing.assert_close(found.state[name], tensor, rtol=1e-6, atol=1e-6)
    converted, original = features(found, vit)
    torch.testing.assert_close(converted, original, rtol=1e-5, atol=1e-5)
    assert list(found.left_out) == ["backbone.mask_token"]


def test_hugging_faces_dinov2_is_dinov2(own, vit):
    state = {}
    for name, tensor in hugging_face(own).items():
        for ours, theirs in (("layernorm_before", "norm1"), ("layernorm_after", "norm2")):
            name = name.replace(ours, theirs)
        if ".attention." not in name:
            name = name.replace("intermediate.dense", "mlp.fc1").replace("output.dense", "mlp.fc2")
        state[name] = tensor
    for i in range(3):
        for j in (1, 2):
            state[f"encoder.layer.{i}.layer_scale{j}.lambda1"] = torch.ones(128)
    state["embeddings.mask_token"] = torch.zeros(1, 128)
    found = convert(state)
    assert torch.equal(*features(found, vit))
    assert list(found.left_out) == ["embeddings.mask_token"]


def test_a_class_token_without_position_and_attention_without_bias_are_zeros(own, vit):
    twin = ViT(**SHAPE).eval()
    twin.load_state_dict(own)
    state = dict(own)
    with torch.no_grad():
        twin.pos_embed[:, 0] = 0
        for i, block in enumerate(twin.blocks):
            block.attn.qkv.bias.zero_()
            del state[f"blocks.{i}.attn.qkv.bias"]
    state["pos_embed"] = own["pos_embed"][:, 1:]
    found = convert(state)
    assert torch.equal(*features(found, twin))
    assert len(found.notes) == 3  # and the number of heads is assumed


def test_half_precision_is_read_as_single(own, vit):
    found = convert({name: tensor.half() for name, tensor in own.items()})
    converted, original = features(found, vit)
    assert converted.dtype == torch.float32
    assert (converted - original).abs().max() < 0.05


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("register_tokens", "register tokens"),
        ("reg_token", "register tokens"),
        ("dist_token", "distillation token"),
        ("norm_pre.weight", "norm before the first block"),
        ("blocks.0.mlp.w12.weight", "SwiGLU"),
        ("blocks.0.attn.q_norm.weight", "normalised queries"),
        ("blocks.0.attn.relative_position_bias_table", "relative positions"),
    ],
)
def test_what_our_vit_cannot_compute_is_refused_by_name(own, name, reason):
    with pytest.raises(ValueError, match=rf"{name}.*{reason}"):
        convert(own | {name: torch.ones(1, 4, 128)})


def test_a_model_that_norms_its_mean_patch_is_refused(own):
    state = {name: tensor for name, tensor in own.items() if not name.startswith("norm.")}
    with pytest.raises(ValueError, match="norms the mean of its patches"):
        convert(state | {"fc_norm.weight": torch.ones(128), "fc_norm.bias": torch.ones(128)})


def without(state, start):
    return {name: tensor for name, tensor in state.items() if not name.startswith(start)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: without(s, "blocks.1."), r"12 missing: blocks\.1\.norm1\.weight, .*, \.\.\."),
        (lambda s: s | {"blocks.0.extra": torch.ones(1)}, r"1 unknown: blocks\.0\.extra"),
        (
            lambda s: s | {"blocks.2.mlp.fc1.weight": torch.ones(256, 128)},
            r"1 of another shape: blocks\.2\.mlp\.fc1\.weight is \(256, 128\), not \(512, 128\)",
        ),
        (lambda s: s | {"norm.bias": torch.full((128,), torch.nan)}, "1 not finite: norm.bias"),
        (lambda s: s | {"pos_embed": torch.ones(1, 12, 128)}, "pos_embed holds 12 tokens"),
        (lambda s: without(s, "cls_token"), "has no cls_token"),
        (lambda s: without(s, "blocks."), "0 tensors in blocks"),
        (lambda s: without(s, "patch_embed."), "holds no ViT: no patch_embed.proj.weight or"),
        (lambda s: without(s, "blocks.0.attn.qkv.bias"), r"1 missing: blocks\.0\.attn\.qkv\.bias"),
    ],
)
def test_what_is_wrong_is_named(own, change, message):
    with pytest.raises(ValueError, match=message):
        convert(change(own))


def test_a_lost_key_of_hugging_face_is_named(own):
    state = hugging_face(own)
    del state["encoder.layer.1.attention.attention.key.weight"]
    with pytest.raises(ValueError, match=r"missing: blocks\.1\.attn\.qkv\.weight.*attn\.query"):
        convert(state)


def test_an_odd_width_asks_for_the_number_of_heads():
    state = ViT(dim=48, depth=1, heads=3, patch_size=4, image_size=8).state_dict()
    with pytest.raises(
        UnknownHeads, match="48 wide, no multiple of 64, and does not tell its number of"
    ):
        convert(state)
    assert convert(state, heads=3).heads == 3
    with pytest.raises(ValueError, match="48 is not a multiple of heads 5"):
        convert(state, heads=5)
