"""Products by oneDNN: the plain ones' numbers and gradients, only where they are asked for."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from wessl import devices, products
from wessl.encoder.vit import ViT
from wessl.ensemble.heads import EnsembleHeads

ASKED = "mkldnn::_linear_pointwise"

needs_onednn = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")),
    reason="this torch has no oneDNN",
)


@pytest.fixture
def everywhere(monkeypatch):
    """As on a CPU where oneDNN is quicker, and for the smallest matrices too."""
    monkeypatch.setattr(products, "_quicker", lambda: True)
    monkeypatch.setattr(products, "WORTHWHILE", 0)


def asked_of(work):
    """Operations that run, by name."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        work()
    return {event.name for event in profile.events()}


def linear(x, weight, bias):
    return products.linear(x, weight, bias), F.linear(x.double(), weight.double(), bias.double())


def matmul(x, weight, bias):
    return products.matmul(x.flatten(0, -2), weight.T), x.flatten(
        0, -2
    ).double() @ weight.T.double()


def stacked(x, weight, bias):
    a, b = torch.stack([x.flatten(0, -2)] * 2), torch.stack([weight.T, 2 * weight.T])
    biases = torch.stack([bias, -bias])
    wide = torch.baddbmm(biases.double()[:, None], a.double(), b.double())
    return products.baddbmm(biases, a, b), wide


@needs_onednn
@settings(deadline=None, max_examples=30)
@given(sizes=st.tuples(*[st.integers(1, 40)] * 4), seed=st.integers(0, 999))
@pytest.mark.parametrize("product", [linear, matmul, stacked])
def test_a_product_and_its_gradients_are_those_of_float64(product, sizes, seed):
    b, n, rows, columns = sizes
    draw = torch.Generator().manual_seed(seed)
    shapes = [(b, n, rows), (columns, rows), (columns,)]
    given_to = [torch.randn(*shape, generator=draw).requires_grad_() for shape in shapes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "_quicker", lambda: True)
        patch.setattr(products, "WORTHWHILE", 0)
        ours, reference = product(*given_to)[0], product(*given_to)[1]  # a graph each
        slope = torch.randn(ours.shape, generator=draw)
        # Of a square, so that the second derivative is there as well.
        found = [of_square(ours, slope, given_to), of_square(reference, slope.double(), given_to)]
    torch.testing.assert_close(ours.double(), reference, rtol=1e-4, atol=1e-4)
    for one, other in zip(*found, strict=True):
        largest = float(other.detach().abs().max())
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3 * largest + 1e-5)


def of_square(y, slope, inputs):
    """Gradients of ``sum(slope y^2)``, and of the sum of their squares."""
    asked = inputs[:2]
    first = torch.autograd.grad((slope * y**2).sum(), asked, create_graph=True)
    second = torch.autograd.grad(sum((g**2).sum() for g in first), asked)
    return [*first, *second]


@needs_onednn
def test_only_large_fp32_products_are_asked_of_onednn(monkeypatch):
    monkeypatch.setattr(products, "_quicker", lambda: True)
    side = 64 * torch.get_num_threads()  # eight times what is worthwhile
    x, weight = torch.randn(8 * side, 512), torch.randn(128, 512)
    assert ASKED in asked_of(lambda: products.linear(x, weight))
    assert ASKED in asked_of(lambda: products.matmul(x, weight.T))
    assert ASKED not in asked_of(lambda: products.linear(x[:8], weight))
    assert ASKED not in asked_of(lambda: products.linear(x.double(), weight.double()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert products.linear(x, weight).dtype == torch.bfloat16
    with torch.backends.mkldnn.flags(enabled=False):
        assert ASKED not in asked_of(lambda: products.linear(x, weight))
    monkeypatch.setattr(products, "_quicker", lambda: False)
    assert ASKED not in asked_of(lambda: products.linear(x, weight))


@needs_onednn
def test_who_looks_into_operations_sees_the_plain_product(everywhere):
    x, weight = torch.randn(6, 4), torch.randn(3, 4)
    plain = x @ weight.T
    with FlopCounterMode(display=False) as counter:
        products.linear(x, weight)
    assert counter.get_total_flops() == 2 * 6 * 4 * 3
    traced = torch.jit.trace(products.linear, (x, weight))
    assert "mkldnn" not in str(traced.graph)
    by_row = torch.func.vmap(lambda row: products.linear(row[None], weight)[0])(x)
    torch.testing.assert_close(by_row, plain)
    _, along = torch.func.jvp(lambda x: products.linear(x, weight), (x,), (x,))
    torch.testing.assert_close(along, plain)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        along = torch.autograd.forward_ad.unpack_dual(products.linear(dual, weight)).tangent
    torch.testing.assert_close(along, plain)
    exported = torch.export.export(Layer(), (x,))
    assert "mkldnn" not in str(exported.graph)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))

    def forward(self, x):
        return products.linear(x, self.weight)


@needs_onednn
@pytest.mark.parametrize("share", [None, "projection", "codebook"])
def test_an_encoder_with_its_heads_learns_the_same_either_way(everywhere, monkeypatch, share):
    torch.manual_seed(0)
    encoder = ViT(dim=32, depth=2, heads=2, patch_size=8, image_size=32)
    heads = EnsembleHeads(32, 3, hidden_dim=16, embed_dim=8, num_codes=12, share=share)
    images = torch.randn(4, 3, 32, 32)
    parameters = [*encoder.parameters(), *heads.parameters()]

    def learn():
        cosines = heads(encoder.cls(images))
        return [cosines, *torch.autograd.grad((cosines**3).sum(), parameters)]

    found = learn()
    assert ASKED in asked_of(learn)
    monkeypatch.setattr(products, "_quicker", lambda: False)
    for ours, plain in zip(found, learn(), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)


def test_a_cpu_has_a_name():
    assert devices.cpu_name().strip()
    assert isinstance(devices.is_amd(), bool)
