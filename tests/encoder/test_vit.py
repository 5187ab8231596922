import math

import pytest
import torch
import torch.nn.functional as F

from wessl import Encoder, ViT


def small(**options):
    torch.manual_seed(0)
    options = dict(patch_size=4, image_size=16, dim=24, depth=3, heads=2) | options
    vit = ViT("T", **options)
    with torch.no_grad():  # larger than at the start, so that every part matters
        for p in vit.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return vit.double().eval()


def plain_vit(vit, images):
    """The transformer written out from its state, one image and one head at a time."""
    s = vit.state_dict()
    p, dim, heads = vit.patch_size, vit.dim, vit.heads
    outputs = []
    for image in images:
        patches = F.conv2d(image[None], s["patch_embed.proj.weight"], s["patch_embed.proj.bias"], p)
        x = torch.cat([s["cls_token"][0], patches[0].flatten(1).T]) + s["pos_embed"][0]
        for i in range(vit.depth):
            k = f"blocks.{i}."
            y = F.layer_norm(x, (dim,), s[k + "norm1.weight"], s[k + "norm1.bias"], 1e-6)
            qkv = y @ s[k + "attn.qkv.weight"].T + s[k + "attn.qkv.bias"]
            mixed = []
            for h in range(heads):
                d = dim // heads
                q, key, v = (qkv[:, part * dim + h * d :][:, :d] for part in range(3))
                mixed.append((q @ key.T / math.sqrt(d)).softmax(-1) @ v)
            x = x + torch.cat(mixed, 1) @ s[k + "attn.proj.weight"].T + s[k + "attn.proj.bias"]
            y = F.layer_norm(x, (dim,), s[k + "norm2.weight"], s[k + "norm2.bias"], 1e-6)
            y = F.gelu(y @ s[k + "mlp.fc1.weight"].T + s[k + "mlp.fc1.bias"])
            x = x + y @ s[k + "mlp.fc2.weight"].T + s[k + "mlp.fc2.bias"]
        outputs.append(F.layer_norm(x, (dim,), s["norm.weight"], s["norm.bias"], 1e-6))
    return torch.stack(outputs)


def images(b=2, ch=3, h=16, w=16):
    return torch.randn(b, ch, h, w, dtype=torch.float64)


def test_the_forward_equals_the_transformer_written_out():
    vit, x = small(), images()
    torch.testing.assert_close(vit(x), plain_vit(vit, x))


@pytest.mark.parametrize(
    ("size", "patch", "dim", "depth", "millions"),
    [
        ("T", 16, 192, 12, 5.5),
        ("S", 16, 384, 12, 21.7),
        ("B", 8, 768, 12, 85.8),
        ("L", 16, 1024, 24, 303.3),
    ],
)
def test_names_and_shapes_are_timms(size, patch, dim, depth, millions):
    with torch.device("meta"):
        vit = ViT(size, patch_size=patch)
    expected = {
        "cls_token": (1, 1, dim),
        "pos_embed": (1, 1 + (224 // patch) ** 2, dim),
        "patch_embed.proj.weight": (dim, 3, patch, patch),
        "patch_embed.proj.bias": (dim,),
        "norm.weight": (dim,),
        "norm.bias": (dim,),
    }
    for i in range(depth):
        for name, shape in {
            "norm1.weight": (dim,), "norm1.bias": (dim,),
            "attn.qkv.weight": (3 * dim, dim), "attn.qkv.bias": (3 * dim,),
            "attn.proj.weight": (dim, dim), "attn.proj.bias": (dim,),
            "norm2.weight": (dim,), "norm2.bias": (dim,),
            "mlp.fc1.weight": (4 * dim, dim), "mlp.fc1.bias": (4 * dim,),
            "mlp.fc2.weight": (dim, 4 * dim), "mlp.fc2.bias": (dim,),
        }.items():  # fmt: skip
            expected[f"blocks.{i}.{name}"] = shape
    assert {k: tuple(v.shape) for k, v in vit.state_dict().items()} == expected
    assert round(sum(p.numel() for p in vit.parameters()) / 1e6, 1) == millions


def test_a_list_of_resolutions_gives_the_separate_outputs():
    vit = small()
    batches = [images(2), images(5, h=8, w=12), images(1, h=20, w=16)]
    for many, one in zip(vit(batches), map(vit, batches), strict=True):
        torch.testing.assert_close(many, one)
    for many, one in zip(vit.cls(batches), map(vit.cls, batches), strict=True):
        torch.testing.assert_close(many, one)


def test_cls_alone_is_exactly_the_first_token():
    vit, x = small(), images(3, h=12, w=20)
    keep = torch.stack([torch.randperm(15)[:7] for _ in range(3)])
    torch.testing.assert_close(vit.cls(x), vit(x)[:, 0])
    torch.testing.assert_close(vit.cls(x, keep), vit(x, keep)[:, 0])


def test_the_gradients_of_cls_alone_are_those_of_the_first_token():
    vit, x = small(), images()
    vit.cls(x).square().sum().backward()
    skipping = [p.grad.clone() for p in vit.parameters()]
    vit.zero_grad()
    vit(x)[:, 0].square().sum().backward()
    for ours, expected in zip(skipping, vit.parameters(), strict=True):
        torch.testing.assert_close(ours, expected.grad)


def test_positions_are_bicubic_to_the_exact_grid():
    vit = small()
    plane = vit.pos_embed[:, 1:].reshape(1, 4, 4, 24).permute(0, 3, 1, 2)
    expected = F.interpolate(plane, (3, 7), mode="bicubic")  # a 13 x 29 picture in patches of 4
    x = images(1, h=13, w=29)
    without = vit.patch_embed(x) + expected.flatten(2).transpose(1, 2).float().double()
    torch.testing.assert_close(vit._embed(x, None)[:, 1:], without, atol=1e-5, rtol=1e-5)
    assert vit(x).shape == (1, 1 + 3 * 7, 24)


def test_dropped_tokens_are_really_gone():
    vit, x = small(), images(2)
    keep = torch.tensor([[0, 3, 9], [15, 2, 7]])
    tokens = vit(x, keep)
    assert tokens.shape == (2, 4, 24)
    changed = x.clone()
    changed[0, :, 4:8, 4:8] += 1  # patch 5, which picture 0 does not keep
    torch.testing.assert_close(vit(changed, keep), tokens)
    changed[0, :, 0:4, 0:4] += 1  # patch 0, which it keeps
    assert not torch.allclose(vit(changed, keep)[0], tokens[0])
    torch.testing.assert_close(vit(x, torch.arange(16).repeat(2, 1)), vit(x))


def test_the_last_blocks_come_normed_and_the_last_is_the_output():
    vit, x = small(), images()
    outputs = vit.last_blocks(x, 2)
    assert len(outputs) == 2
    torch.testing.assert_close(outputs[-1], vit(x))
    shorter = small(depth=2)
    shorter.load_state_dict({k: v for k, v in vit.state_dict().items() if "blocks.2" not in k})
    torch.testing.assert_close(outputs[0], shorter(x))


def test_attention_maps_are_distributions_that_mix_the_values():
    vit, x = small(), images()
    maps = vit.attention_maps(x)
    assert maps.shape == (2, 2, 17, 17)
    torch.testing.assert_close(maps.sum(-1), torch.ones(2, 2, 17, dtype=torch.float64))
    block = vit.blocks[-1]
    y = block.norm1(_before_last(vit, x))
    v = block.attn.qkv(y)[..., 48:].unflatten(2, (2, 12)).transpose(1, 2)
    torch.testing.assert_close(
        block.attn.proj((maps @ v).transpose(1, 2).flatten(2)), block.attn(y)
    )


def _before_last(vit, x):
    x = vit._embed(x, None)
    for block in vit.blocks[:-1]:
        x = block(x)
    return x


def test_drop_path_follows_the_given_draws_and_grows_with_depth():
    vit, x = small(drop_path=0.6).train(), images(3)
    none_dropped = torch.ones(3, 3, 2)
    draws = none_dropped.clone()
    draws[1, 2] = 0.5  # picture 1 loses both branches of the last block
    draws[2, 1] = 0.3001  # picture 2 just keeps the second
    torch.testing.assert_close(vit(x, drop=draws)[0], vit(x, drop=none_dropped)[0])
    torch.testing.assert_close(vit(x, drop=draws)[1], _scaled(vit, x, [1, 1 / 0.7, 0])[1])
    torch.testing.assert_close(vit(x, drop=draws)[2], _scaled(vit, x, [1, 1 / 0.7, 1 / 0.4])[2])
    draws[2, 1] = 0.2999
    torch.testing.assert_close(vit(x, drop=draws)[2], _scaled(vit, x, [1, 0, 1 / 0.4])[2])
    torch.testing.assert_close(vit.cls(x, drop=draws), vit(x, drop=draws)[:, 0])


def _scaled(vit, x, scales):
    """Every block's branches multiplied by its number."""
    x = vit._embed(x, None)
    for block, scale in zip(vit.blocks, scales, strict=True):
        x = block(x, torch.full((2, len(x)), scale, dtype=x.dtype))
    return vit.norm(x)


def test_drop_path_keeps_the_mean_and_is_off_in_evaluation():
    vit, x = small(drop_path=0.5, depth=2), images(1)
    torch.testing.assert_close(vit(x), vit(x))
    vit.norm = torch.nn.Identity()
    block = vit.train().blocks[1]
    torch.nn.init.zeros_(block.mlp.fc2.weight)
    torch.nn.init.zeros_(block.mlp.fc2.bias)
    before = vit.blocks[0](vit._embed(x, None))
    torch.manual_seed(0)
    branch = (vit(x.expand(10000, -1, -1, -1)) - before).mean(0)
    torch.testing.assert_close(branch, block.attn(block.norm1(before))[0], rtol=0.05, atol=1e-3)


@pytest.mark.parametrize("channels", [1, 5])
def test_any_number_of_channels(channels):
    vit = small(in_channels=channels)
    assert vit(images(ch=channels)).shape == (2, 17, 24)
    with pytest.raises(ValueError, match=rf"expected \(b, {channels}, h, w\)"):
        vit(images(ch=2))


def test_it_is_an_encoder():
    assert isinstance(small(), Encoder)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(size="XL"), "size must be one of T, S, B, L, got 'XL'"),
        (dict(dim=25, heads=2), "dim 25 is not a multiple of heads 2"),
        (dict(drop_path=1.0), r"drop_path must lie in \[0, 1\), got 1.0"),
        (dict(image_size=8), "a 8x8 picture is smaller than a patch, 16"),
        (dict(depth=0), "depth must be at least 1, got 0"),
        (dict(patch_size=0), "patch_size must be at least 1, got 0"),
        (dict(in_channels=-1), "in_channels must be at least 1"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        ViT(**options)


def test_a_picture_smaller_than_a_patch_is_named():
    with pytest.raises(ValueError, match="a 3x16 picture is smaller than a patch, 4"):
        small()(images(h=3))
    with pytest.raises(ValueError, match=r"keep must be int64 \(2, k\) patch numbers"):
        small()(images(2), torch.zeros(1, 3, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"n must lie in 1..3, got 4"):
        small().last_blocks(images(), 4)
