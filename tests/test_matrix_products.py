"""Products by oneDNN: the plain ones' numbers and gradients, only where they are asked for."""

import re

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from wessl import devices, matrix_products
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
    monkeypatch.setattr(matrix_products, "_quicker", lambda: True)
    monkeypatch.setattr(matrix_products, "WORTHWHILE", 0)


def asked_of(work):
    """Operations that run, by name."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        work()
    return {event.name for event in profile.events()}


def linear(x, weight, bias):
    return matrix_products.linear(x, weight, bias), F.linear(
        x.double(), weight.double(), bias.double()
    )


def matmul(x, weight, bias):
    return matrix_products.matmul(x.flatten(0, -2), weight.T), x.flatten(
        0, -2
    ).double() @ weight.T.double()


def stacked(x, weight, bias):
    a, b = torch.stack([x.flatten(0, -2)] * 2), torch.stack([weight.T, 2 * weight.T])
    biases = torch.stack([bias, -bias])
    wide = torch.baddbmm(biases.double()[:, None], a.double(), b.double())
    return matrix_products.baddbmm(biases, a, b), wide


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
        patch.setattr(matrix_products, "_quicker", lambda: True)
        patch.setattr(matrix_products, "WORTHWHILE", 0)
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
    monkeypatch.setattr(matrix_products, "_quicker", lambda: True)
    side = 64 * torch.get_num_threads()  # eight times what is worthwhile
    x, weight = torch.randn(8 * side, 512), torch.randn(128, 512)
    assert ASKED in asked_of(lambda: matrix_products.linear(x, weight))
    assert ASKED in asked_of(lambda: matrix_products.matmul(x, weight.T))
    assert ASKED not in asked_of(lambda: matrix_products.linear(x[:8], weight))
    assert ASKED not in asked_of(lambda: matrix_products.linear(x.double(), weight.double()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert matrix_products.linear(x, weight).dtype == torch.bfloat16
    with torch.backends.mkldnn.flags(enabled=False):
        assert ASKED not in asked_of(lambda: matrix_products.linear(x, weight))
    monkeypatch.setattr(matrix_products, "_quicker", lambda: False)
    assert ASKED not in asked_of(lambda: matrix_products.linear(x, weight))


@needs_onednn
def test_who_looks_into_operations_sees_the_plain_product(everywhere):
    x, weight = torch.randn(6, 4), torch.randn(3, 4)
    plain = x @ weight.T
    with FlopCounterMode(display=False) as counter:
        matrix_products.linear(x, weight)
    assert counter.get_total_flops() == 2 * 6 * 4 * 3
    traced = torch.jit.trace(matrix_products.linear, (x, weight))
    assert "mkldnn" not in str(traced.graph)
    by_row = torch.func.vmap(lambda row: matrix_products.linear(row[None], weight)[0])(x)
    torch.testing.assert_close(by_row, plain)
    _, along = torch.func.jvp(lambda x: matrix_products.linear(x, weight), (x,), (x,))
    torch.testing.assert_close(along, plain)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, x)
        along = torch.autograd.forward_ad.unpack_dual(matrix_products.linear(dual, weight)).tangent
    torch.testing.assert_close(along, plain)
    exported = torch.export.export(Layer(), (x,))
    assert "mkldnn" not in str(exported.graph)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4))

    def forward(self, x):
        return matrix_products.linear(x, self.weight)


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
    monkeypatch.setattr(matrix_products, "_quicker", lambda: False)
    for ours, plain in zip(found, learn(), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)


@needs_onednn
@pytest.mark.parametrize(
    "wanted", [(True, False, False), (False, True, True), (False, False, True)]
)
def test_gradients_come_for_what_wants_them(everywhere, wanted):
    inputs = [torch.randn(6, 4), torch.randn(3, 4), torch.randn(3)]
    for one, wants in zip(inputs, wanted, strict=True):
        one.requires_grad_(wants)
    found = matrix_products.linear(*inputs).square().sum()
    plain = F.linear(*inputs).square().sum()
    asked = [one for one in inputs if one.requires_grad]
    pairs = zip(torch.autograd.grad(found, asked), torch.autograd.grad(plain, asked), strict=True)
    for ours, theirs in pairs:
        torch.testing.assert_close(ours, theirs)


@needs_onednn
def test_factors_with_gaps_are_made_dense(everywhere, monkeypatch):
    """oneDNN's own way with such second factors takes a thousand times as long."""
    asked, second = torch.ops.mkldnn._linear_pointwise, []

    def watched(a, b, *others):
        second.append(b)
        return asked(a, b, *others)

    monkeypatch.setattr(torch.ops.mkldnn, "_linear_pointwise", watched)
    for rows, columns in ((8, 4), (4, 8)):  # each way round in the gradient of the weight
        x = torch.randn(32, 5, rows)[:, 0]  # every fifth row
        weight = torch.randn(columns, rows, requires_grad=True)
        matrix_products.linear(x, weight).sum().backward()  # the slope is one number, everywhere
        torch.testing.assert_close(weight.grad, x.sum(0).expand(columns, -1))
    assert len(second) == 4
    assert all(b.is_contiguous() or b.mT.is_contiguous() for b in second)


@needs_onednn
def test_without_gradients_and_computed_again_it_is_the_same(everywhere):
    x, layer = torch.randn(6, 4, requires_grad=True), matrix_products.Linear(4, 3)
    plain = F.linear(x, layer.weight, layer.bias)
    with torch.inference_mode():
        torch.testing.assert_close(layer(x), plain)
    again = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
    torch.testing.assert_close(again, plain)
    (slope,) = torch.autograd.grad(again.sum(), x)
    torch.testing.assert_close(slope, layer.weight.sum(0).expand(6, -1))


@needs_onednn
@pytest.mark.parametrize("shapes", [((6, 4), (5, 3)), ((2, 6, 4), (3, 4, 3)), ((6, 4), (2, 4, 3))])
def test_what_does_not_fit_is_torch_s_own_error_or_broadcast(everywhere, shapes):
    a, b = (torch.randn(shape) for shape in shapes)
    try:
        wanted = a @ b
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=re.escape(str(error))):
            matrix_products.matmul(a, b)
    else:
        torch.testing.assert_close(matrix_products.matmul(a, b), wanted)


ZEN_4 = {"vendor_id": "AuthenticAMD", "cpu family": "25"}
ZEN_5 = {"vendor_id": "AuthenticAMD", "cpu family": "26"}
INTEL = {"vendor_id": "GenuineIntel", "cpu family": "19"}


@needs_onednn
@pytest.mark.skipif(not matrix_products._known(), reason="an older torch")
def test_zen_5_is_where_onednn_is_quicker(monkeypatch):
    quicker = matrix_products._quicker.__wrapped__
    monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    for facts, wanted in ((ZEN_5, True), (ZEN_4, False), (INTEL, False), ({}, False)):
        monkeypatch.setattr(devices, "cpu_facts", lambda facts=facts: facts)
        assert quicker() == wanted
    monkeypatch.setattr(devices, "cpu_facts", lambda: ZEN_5)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    assert not quicker()


@needs_onednn
@pytest.mark.skipif(not matrix_products._known(), reason="an older torch")
@pytest.mark.parametrize("name", matrix_products.LOOKS)
def test_a_torch_that_no_longer_says_who_looks_gets_the_plain_product(monkeypatch, name):
    monkeypatch.delattr(torch._C, name)
    assert not matrix_products._known()


def test_a_cpu_is_told_by_name_family_and_model(monkeypatch):
    facts = {"vendor_id": "AuthenticAMD", "model name": "AMD EPYC", "cpu family": "26"}
    monkeypatch.setattr(devices, "cpu_facts", lambda: facts | {"model": "2"})
    assert devices.cpu_name() == "AMD EPYC (family 26, model 2)"
    monkeypatch.setattr(devices, "cpu_facts", dict)
    assert "family" not in devices.cpu_name()
