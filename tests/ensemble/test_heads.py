import pytest
import torch
import torch.nn.functional as F
from torch import nn

from wessl import EnsembleHeads
from wessl.ensemble import heads as module


@pytest.fixture(params=["cpu", "gpu"])
def way(request, monkeypatch):
    """Products and what is kept for backward, as on either."""
    monkeypatch.setattr(module, "on_gpu", lambda x: request.param == "gpu")
    return request.param


def one_head(heads, j, x):
    """Head j as an ordinary MLP and codebook, from the stacked weights."""
    for layer in heads.projection:
        if hasattr(layer, "weight"):
            k = j if len(layer.weight) > 1 else 0
            x = F.linear(x, layer.weight[k].T, layer.bias[k])
        else:
            x = F.gelu(x)
    codes = heads.codebook[j if len(heads.codebook) > 1 else 0]
    return F.cosine_similarity(x[:, None], codes[None], dim=-1)


@pytest.mark.parametrize("share", [None, "projection", "codebook"])
@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("m", [1, 4])
def test_the_batched_heads_equal_m_separate_heads(way, share, depth, m):
    heads = EnsembleHeads(12, m, 16, depth, 8, 10, share).double()
    for p in heads.parameters():
        nn.init.normal_(p)
    x = torch.randn(5, 12, dtype=torch.float64, requires_grad=True)
    found, expected = heads(x), torch.stack([one_head(heads, j, x) for j in range(m)])
    torch.testing.assert_close(found, expected)
    leaves, slope = [x, *heads.parameters()], torch.randn_like(expected)
    ours, theirs = (torch.autograd.grad(y, leaves, slope) for y in (found, expected))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_a_gpu_keeps_each_hidden_layer_once_and_the_input_once():
    heads = EnsembleHeads(96, 4, hidden_dim=64, depth=3, embed_dim=8, num_codes=10)
    x, kept = torch.randn(50, 96, requires_grad=True), {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    def bytes_kept(gpu):
        kept.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "on_gpu", lambda x: gpu)
            with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
                embeddings = heads.embed(x)
        weights = {p.untyped_storage().data_ptr() for p in heads.parameters()}
        assert embeddings.requires_grad
        return sum(size for place, size in kept.items() if place not in weights)

    hidden, wide_weights = 4 * 4 * 50 * 64, 4 * 4 * 96 * 64
    assert bytes_kept(gpu=False) - bytes_kept(gpu=True) == 2 * hidden - wide_weights


def test_computing_again_does_not_count_a_batch_twice(way):
    torch.manual_seed(0)
    heads = EnsembleHeads(12, 2, 16, 3, 8, 10, batch_norm=True)
    heads(torch.randn(6, 12, requires_grad=True)).sum().backward()
    assert [int(b) for name, b in heads.named_buffers() if "tracked" in name] == [1, 1]


def test_shared_parts_have_one_copy_and_the_others_one_a_head():
    def count(**options):
        heads = EnsembleHeads(12, 4, 16, 3, 8, 10, **options)
        return sum(p.numel() for p in heads.projection.parameters()), heads.codebook.numel()

    mlp, codes = (12 + 1) * 16 + (16 + 1) * 16 + (16 + 1) * 8, 10 * 8
    assert count() == (4 * mlp, 4 * codes)
    assert count(share="projection") == (mlp, 4 * codes)
    assert count(share="codebook") == (4 * mlp, codes)


def test_heads_start_different_from_each_other_with_the_papers_spread():
    torch.manual_seed(0)
    heads = EnsembleHeads(64, 3, 128, 3, 32, 16)
    for layer in heads.projection[::2]:
        assert 0.015 < layer.weight.std() < 0.021
        assert (layer.bias == 0).all()
        assert not torch.equal(layer.weight[0], layer.weight[1])
    cosines = heads(torch.randn(4, 64))
    assert not torch.allclose(cosines[0], cosines[1])


def test_outputs_are_cosines_whatever_the_length_of_input_or_codes():
    heads = EnsembleHeads(12, 4, 16, 1, 8, 10)
    cosines = heads(torch.randn(5, 12))
    assert cosines.abs().max() <= 1 + 1e-6
    with torch.no_grad():
        heads.codebook.mul_(100)
    x = torch.randn(5, 12)
    torch.testing.assert_close(heads(1000 * x), heads(x))  # no bias at the start, depth 1


def test_weight_norm_gives_every_code_a_length_that_starts_at_one():
    heads = EnsembleHeads(12, 1, 16, 3, 8, 10, weight_norm=True)
    x = torch.randn(5, 12)
    before = heads(x)
    torch.testing.assert_close(before[0], one_head(heads, 0, x))
    with torch.no_grad():
        heads.code_length.mul_(torch.arange(1.0, 11))
    torch.testing.assert_close(heads(x), before * torch.arange(1.0, 11))


def test_batch_norm_normalises_every_head_by_its_own_statistics():
    heads = EnsembleHeads(12, 3, 16, 3, 8, 10, batch_norm=True)
    x = torch.randn(32, 12)
    stacked, norm = heads.projection[0](x), heads.projection[1]
    for j in range(3):
        alone = nn.BatchNorm1d(16)(stacked[j])
        torch.testing.assert_close(norm(stacked)[j], alone)


def test_the_loop_over_heads_is_nowhere_in_the_forward():
    """The number of operations does not grow with the number of heads."""
    from torch.utils._python_dispatch import TorchDispatchMode

    def operations(m):
        calls = 0

        class Count(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                nonlocal calls
                calls += 1
                return func(*args, **(kwargs or {}))

        heads, x = EnsembleHeads(12, m, 16, 3, 8, 10), torch.randn(5, 12)
        with Count():
            heads(x)
        return calls

    assert operations(2) == operations(16)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(num_heads=0), "num_heads must be at least 1, got 0"),
        (dict(depth=0), "depth must be at least 1"),
        (dict(share="both"), "share must be None, 'projection' or 'codebook', got 'both'"),
    ],
)
def test_wrong_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        EnsembleHeads(12, **options)


def test_a_wrong_input_is_named():
    with pytest.raises(ValueError, match=r"expected \(n, 12\), got \(5, 13\)"):
        EnsembleHeads(12)(torch.zeros(5, 13))


def test_cosines_stay_fp32_under_autocast():
    heads, x = EnsembleHeads(12, 4, 16, 3, 8, 10), torch.randn(5, 12)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cosines = heads(x)
    assert cosines.dtype == torch.float32
    assert cosines.unique().numel() > 150  # bf16 would round many of the 200 together
    torch.testing.assert_close(cosines, heads(x), atol=0.05, rtol=0)
