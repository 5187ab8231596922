import pytest
import torch

from wessl import ViT
from wessl.config import Config, EncoderConfig, HeadsConfig
from wessl.encoder.mimetic import factors, mimetic_, sines
from wessl.pretrain.model import build_model


def vit(**options) -> ViT:
    torch.manual_seed(0)
    return ViT("T", **dict(patch_size=4, image_size=16, dim=64, depth=2, heads=2) | options)


def test_factors_have_the_product_they_are_of():
    torch.manual_seed(0)
    product = torch.randn(12, 12)
    left, right = factors(product, 12)
    torch.testing.assert_close(left @ right.T, product)
    assert torch.allclose(left.norm(dim=0), right.norm(dim=0))
    left, right = factors(product, 3)
    missed = (left @ right.T - product).square().sum()
    torch.testing.assert_close(missed, torch.linalg.svdvals(product)[3:].square().sum())


def test_queries_are_like_keys_and_values_times_output_like_minus_the_identity():
    encoder = vit()
    mimetic_(encoder)
    for block in encoder.blocks:
        q, k, v = block.attn.qkv.weight.unflatten(0, (3, 2, 32))
        for head in range(2):
            assert (q[head].T @ k[head]).diagonal().mean() > 0.3
        product = block.attn.proj.weight @ v.flatten(0, 1)
        off = product - torch.diag(product.diagonal())
        assert abs(product.diagonal().mean() + 0.4) < 0.05
        assert abs(off.square().sum() / (64 * 63) / (0.4**2 / 64) - 1) < 0.1


def test_tokens_look_at_themselves_and_more_at_neighbours_than_far_away():
    encoder = vit(image_size=32, dim=128)
    mimetic_(encoder)
    positions = encoder.pos_embed.expand(1, -1, -1)
    maps = encoder.blocks[0].attn.maps(encoder.blocks[0].norm1(positions))[0, :, 1:, 1:].mean(0)
    place = torch.cartesian_prod(torch.arange(8.0), torch.arange(8.0))
    far = torch.cdist(place, place)
    by_distance = [maps[far == d].mean() for d in (0, 1, 2, 4)]
    assert by_distance == sorted(by_distance, reverse=True)
    assert by_distance[0] > 2 * by_distance[2] > 4 * by_distance[3]
    plain = vit(image_size=32, dim=128)
    even = plain.blocks[0].attn.maps(plain.blocks[0].norm1(positions))
    assert even.max() < 0.05


def test_rows_and_columns_have_their_own_waves():
    waves = sines(3, 5, 8).view(3, 5, 8)
    assert torch.equal(waves[:, 0, :4], waves[:, 4, :4])
    assert torch.equal(waves[0, :, 4:], waves[2, :, 4:])
    assert len(waves.flatten(0, 1).unique(dim=0)) == 15
    assert sines(2, 2, 6).shape == (4, 6)


def start_of(start, heads=2):
    encoder = EncoderConfig("vit", "T", 4, 16, dim=64, depth=2, heads=2, start=start)
    config = Config(encoder=encoder, heads=HeadsConfig(heads, 16, 2, 8, 32), seed=3)
    return build_model(config).encoder.state_dict()


def test_only_attention_and_positions_change():
    random, mimetic, again = start_of("random"), start_of("mimetic"), start_of("mimetic")
    changed = {name for name in random if not torch.equal(random[name], mimetic[name])}
    layers = {f"blocks.{i}.attn.{name}" for i in (0, 1) for name in ("qkv", "proj")}
    assert changed == {"pos_embed", *(f"{layer}.weight" for layer in layers)}
    assert all(torch.equal(mimetic[name], again[name]) for name in random)


@pytest.mark.parametrize("start", ["random", "mimetic"])
def test_an_encoder_starts_alike_however_many_heads_learn_with_it(start):
    one, many = start_of(start, heads=1), start_of(start, heads=5)
    assert all(torch.equal(one[name], many[name]) for name in one)


def test_a_start_is_the_same_with_any_number_of_threads():
    """With more, rounding turned singular vectors of an S/16 round."""
    before, starts = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            encoder = vit(dim=384, heads=6, depth=1)
            mimetic_(encoder)
            assert torch.get_num_threads() == threads
            starts.append(encoder.state_dict())
    finally:
        torch.set_num_threads(before)
    for other in starts[1:]:
        assert all(torch.equal(starts[0][name], other[name]) for name in other)


def test_a_rehearsal_without_memory_passes():
    with torch.device("meta"):
        encoder = vit()
    mimetic_(encoder)


def test_the_convolutional_encoder_has_no_attention_to_start():
    encoder = EncoderConfig("conv", start="mimetic", widths=(8, 16))
    build_model(Config(encoder=encoder, heads=HeadsConfig(2, 16, 2, 8, 32)))
