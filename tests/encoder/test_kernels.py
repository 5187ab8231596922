"""The Triton kernels against float64 on a GPU, and what takes their place without one.

With Triton installed, ``TRITON_INTERPRET=1`` runs the kernels themselves on a CPU too.
"""

import os

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from wessl.encoder import kernels
from wessl.encoder.kernels import attention, gelu, norm
from wessl.encoder.segments import Segments
from wessl.encoder.vit import ViT

GPU = torch.cuda.is_available()
INTERPRETED = attention.AVAILABLE and os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if GPU and not INTERPRETED else "cpu"
HALF = torch.float16 if INTERPRETED else torch.bfloat16  # bf16 is wrong in the interpreter

on_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
by_triton = pytest.mark.skipif(DEVICE == "cpu" and not INTERPRETED, reason="needs a GPU")


WIDTHS = st.sampled_from([16, 32, 64, 128])


def distance(ours: Tensor, exact: Tensor, of: Tensor | None = None) -> float:
    """Relative to the exact numbers, or to what they were made of, where these may cancel."""
    size = (exact if of is None else of).detach().double().norm()
    return float((ours.detach().double() - exact.detach()).norm() / size)


def few(numbers: int) -> float:
    """How many times as far as many numbers, whose roundings average out, a few may lie off."""
    return 1 + 4 / numbers**0.5


def loop_attention(qkv: Tensor, heads: int) -> Tensor:
    """The textbook, picture by picture and head by head."""
    dim = qkv.shape[2] // 3
    width = dim // heads
    out = qkv.new_zeros(*qkv.shape[:2], dim)
    for i, picture in enumerate(qkv):
        for h in range(heads):
            q, k, v = (picture[:, part * dim + h * width :][:, :width] for part in range(3))
            out[i, :, h * width :][:, :width] = (q @ k.T / width**0.5).softmax(1) @ v
    return out


def test_plain_attention_is_the_textbooks():
    qkv = torch.randn(2, 7, 3 * 12, dtype=torch.float64)
    torch.testing.assert_close(kernels.attention_plain(qkv, 3), loop_attention(qkv, 3))


@pytest.mark.parametrize(("n", "heads"), [(1, 1), (17, 3), (65, 3), (kernels.PRODUCTS + 1, 2)])
def test_attention_in_bf16_on_a_cpu_equals_float64_and_so_do_its_gradients(n, heads):
    shapes = (3, n, 32), (96 * heads, 32), (96 * heads,)
    x, weight, bias = (torch.randn(shape).mul(0.3).bfloat16() for shape in shapes)
    exact = [t.double().requires_grad_() for t in (x, weight, bias)]
    ours = [t.requires_grad_() for t in (x, weight, bias)]
    found = kernels.linear_attention(*ours, heads)
    expected = loop_attention(F.linear(*exact), heads)
    assert found.dtype == torch.bfloat16
    assert distance(found.detach(), expected.detach()) < 2e-2
    direction = torch.randn_like(found)
    gradients = torch.autograd.grad(found, ours, direction)
    wanted = torch.autograd.grad(expected, exact, direction.double())
    for a, b in zip(gradients, wanted, strict=True):
        assert distance(a, b) < 2e-2


def test_without_half_precision_on_a_gpu_the_plain_expressions_run():
    x = torch.randn(2, 5, 16)
    weight, bias = torch.randn(48, 16, requires_grad=True), torch.randn(48, requires_grad=True)
    qkv = F.linear(x, weight, bias)
    ours = kernels.linear_attention(x, weight, bias, 2)
    assert torch.equal(ours, kernels.attention_plain(qkv, 2))
    assert torch.equal(kernels.linear_gelu(x, weight, bias), F.gelu(qkv))
    gradients = torch.autograd.grad(ours.square().sum(), [weight, bias])
    expected = torch.autograd.grad(kernels.attention_plain(qkv, 2).square().sum(), [weight, bias])
    assert all(torch.equal(a, b) for a, b in zip(gradients, expected, strict=True))
    with torch.autocast("cpu", torch.bfloat16):
        assert not kernels.in_half(x)
        assert kernels.stream(x).dtype == torch.float32


@by_triton
@pytest.mark.parametrize(
    ("b", "n", "heads", "width"),
    [(3, 1, 2, 64), (5, 37, 6, 64), (3, 64, 2, 16), (2, 65, 3, 64), (2, 157, 6, 64),
     (2, 197, 6, 64), (2, 257, 2, 32), (1, 300, 1, 64), (2, 50, 2, 128), (2, 400, 2, 64),
     (1, 512, 1, 64)],
)  # fmt: skip
def test_attention_and_its_gradients_equal_float64(b, n, heads, width):
    compare_attention(b, n, heads, width)


@by_triton
@settings(max_examples=8, deadline=None)
@given(b=st.integers(1, 4), n=st.integers(1, 140), heads=st.integers(1, 3), width=WIDTHS)
def test_attention_of_any_shape_equals_float64(b, n, heads, width):
    compare_attention(b, n, heads, width)


def compare_attention(b, n, heads, width):
    dim = heads * width
    qkv = torch.randn(b, n, 3 * dim, device=DEVICE).to(HALF).requires_grad_()
    bias = torch.zeros(3 * dim, device=DEVICE, requires_grad=True)
    grad = torch.randn(b, n, dim, device=DEVICE).to(HALF)
    exact = qkv.detach().double().requires_grad_()
    expected = kernels.attention_plain(exact, heads)
    expected.backward(grad.double())
    out = attention.apply(qkv, bias, heads)
    out.backward(grad)
    assert distance(out, expected) < 4e-3
    assert distance(qkv.grad, exact.grad) < 5e-3
    # The keys' part is left out: exactly, it is 0.
    ours, sums = (x.clone() for x in (bias.grad, exact.grad.sum((0, 1))))
    ours[dim : 2 * dim] = sums[dim : 2 * dim] = 0
    assert distance(ours, sums) < 5e-3


@by_triton
@pytest.mark.parametrize("n", [17, 37, 65, 197])
def test_attention_to_keys_that_all_score_far_below_zero_has_finite_gradients(n):
    # Rows beyond n score 0, infinitely more than these in fp32: they must not count.
    q, k, v = (torch.randn(2, n, 64, device=DEVICE) for _ in range(3))
    qkv = torch.cat([q + 14, k - 14, v], 2).to(HALF)
    grad = torch.randn(2, n, 64, device=DEVICE).to(HALF)
    out, log_sums = attention.forward(qkv, 1, Segments.of(qkv))
    assert float(log_sums.max()) < -200
    exact = qkv.double().requires_grad_()
    kernels.attention_plain(exact, 1).backward(grad.double())
    ours, sums = attention.backward(qkv, out, grad, log_sums, 1, Segments.of(qkv))
    assert bool(sums.isfinite().all())
    assert distance(ours, exact.grad) < 3e-2


@by_triton
@pytest.mark.parametrize("outer", [32, 64, 128, 256])
@pytest.mark.parametrize("inner", [16, 32, 64])
def test_attention_does_not_depend_on_how_it_is_cut(outer, inner):
    qkv, grad = (torch.randn(2, 77, k * 64, device=DEVICE).to(HALF) for k in (3, 1))
    out, log_sums = attention.forward(qkv, 1, Segments.of(qkv))
    exact = qkv.double().requires_grad_()
    kernels.attention_plain(exact, 1).backward(grad.double())
    blocks = attention.Blocks(outer, inner, 4 if outer < 256 else 8, 1)
    ours, _ = attention.backward(qkv, out, grad, log_sums, 1, Segments.of(qkv), blocks)
    assert distance(ours, exact.grad) < 5e-3


@by_triton
@pytest.mark.parametrize("shape", [(1, 128), (3, 37, 1536), (1000, 100), (7, 3072)])
def test_gelu_and_its_gradients_equal_float64(shape):
    compare_gelu(shape)


@by_triton
@settings(max_examples=8, deadline=None)
@given(st.tuples(st.integers(1, 300), st.integers(1, 700)))
def test_gelu_of_any_shape_equals_float64(shape):
    compare_gelu(shape)


def compare_gelu(shape):
    x = (3 * torch.randn(shape, device=DEVICE)).to(HALF).requires_grad_()
    bias = torch.zeros(shape[-1], device=DEVICE, requires_grad=True)
    grad = torch.randn(shape, device=DEVICE).to(HALF)
    exact = x.detach().double().requires_grad_()
    expected = F.gelu(exact)
    expected.backward(grad.double())
    out = gelu.apply(x, bias)
    out.backward(grad)
    # A single number may lie where GELU or its slope is next to 0.
    assert distance(out, expected, of=x) < 2e-3 * few(x.numel())
    assert distance(x.grad, exact.grad, of=grad) < 2e-3 * few(x.numel())
    assert distance(bias.grad, exact.grad.flatten(0, -2).sum(0), of=grad) < 3e-5


def add_and_norm(x, branch, scale, weight, shift):
    y = x + branch * scale[:, None, None]
    return y, F.layer_norm(y, y.shape[-1:], weight, shift, 1e-6)


@by_triton
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(
    ("b", "n", "dim"), [(1, 1, 64), (5, 37, 384), (2, 197, 192), (3, 50, 768), (2, 7, 100)]
)
def test_add_and_norm_and_their_gradients_equal_float64(b, n, dim, scaled):
    compare_add_and_norm(b, n, dim, scaled)


@by_triton
@settings(max_examples=8, deadline=None)
# Of two or three numbers that happen to be alike the norm magnifies any rounding.
@given(b=st.integers(1, 5), n=st.integers(1, 90), dim=st.integers(8, 400), scaled=st.booleans())
def test_add_and_norm_of_any_shape_equal_float64(b, n, dim, scaled):
    compare_add_and_norm(b, n, dim, scaled)


def compare_add_and_norm(b, n, dim, scaled):
    def random(*shape):
        return torch.randn(shape, device=DEVICE)

    x, branch = (random(b, n, dim).to(HALF).requires_grad_() for _ in range(2))
    bias, shift = (random(dim).requires_grad_() for _ in range(2))
    weight = (1 + 0.3 * random(dim)).requires_grad_()
    scale = (torch.arange(b, device=DEVICE) % 3 != 1) / 0.9 if scaled else None
    grads = [random(b, n, dim).to(HALF) for _ in range(2)]
    ours = norm.apply(x, branch, scale, bias, weight, shift, 1e-6)
    torch.autograd.backward(ours, grads)

    inputs = x, branch, weight, shift
    exact = [t.detach().double().requires_grad_() for t in inputs]
    ones = torch.ones(b, dtype=torch.float64, device=DEVICE)
    expected = add_and_norm(*exact[:2], ones if scale is None else scale.double(), *exact[2:])
    torch.autograd.backward(expected, [g.double() for g in grads])
    for found, wanted in zip(ours, expected, strict=True):
        assert distance(found.detach(), wanted.detach()) < 4e-3
    for found, wanted in zip(inputs, exact, strict=True):
        numbers = b * n if found is weight else x.numel()  # where a few tokens' may cancel
        assert distance(found.grad, wanted.grad) < 4e-3 * few(numbers)
    assert distance(bias.grad, exact[1].grad.sum((0, 1))) < 4e-3 * few(x.numel())


@by_triton
def test_what_a_branch_is_scaled_by_may_lie_apart_in_memory():
    x, branch = (torch.randn(4, 9, 64, device=DEVICE).to(HALF) for _ in range(2))
    weight, shift = torch.ones(64, device=DEVICE), torch.zeros(64, device=DEVICE)
    scale = torch.rand(4, 2, device=DEVICE)[:, 0]
    found, _ = norm.apply(x, branch, scale, shift, weight, shift, 1e-6)
    assert distance(found, x.double() + scale.double()[:, None, None] * branch.double()) < 4e-3


@by_triton
@pytest.mark.parametrize("cut", [norm.Cut(16, 1, 4), norm.Cut(64, 8, 8)])
def test_add_and_norm_do_not_depend_on_how_the_tokens_are_cut(cut):
    x, branch, grad_y, grad_normed = (
        torch.randn(3, 11, 96, device=DEVICE).to(HALF) for _ in range(4)
    )
    scale, weight = torch.rand(3, device=DEVICE), torch.randn(96, device=DEVICE)
    y, normed, mean, inverse = norm.forward(x, branch, scale, weight, weight, 1e-6)
    for a, b in zip(
        (y, normed, mean, inverse),
        norm.forward(x, branch, scale, weight, weight, 1e-6, cut),
        strict=True,
    ):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2)
    given = grad_y, grad_normed, y, mean, inverse, scale, weight
    *ours, sums = norm.backward(*given)
    *others, other_sums = norm.backward(*given, cut)
    for a, b in zip(ours, others, strict=True):
        assert distance(a, b.double()) < 1e-2
    assert distance(sums.sum(0), other_sums.double().sum(0)) < 1e-5


def randoms(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.randn(shape, device=DEVICE).to(HALF).requires_grad_() for shape in shapes]


OPERATORS = {
    "gelu": ("gelu", [(5, 128), (128,)], []),
    "attention": ("attention", [(3, 37, 96), (96,)], [1, [3], [37]]),
    "attention of segments": ("attention", [(2 * 9 + 3 * 70, 192), (192,)], [2, [2, 3], [9, 70]]),
    "add and norm": ("add_norm", [(4, 7, 64), (4, 7, 64), (4,), (64,), (64,), (64,)], [1e-6]),
}


@by_triton
@pytest.mark.parametrize("name", OPERATORS)
def test_what_the_compiler_is_told_of_an_operator_is_what_it_does(name):
    operator, shapes, settings = OPERATORS[name]
    inputs = randoms(*shapes)
    if operator == "add_norm":  # drop-path's factors are fp32, and nothing learns them
        inputs[2] = inputs[2].detach().float()
    torch.library.opcheck(getattr(torch.ops.wessl, operator).default, (*inputs, *settings))


@by_triton
@pytest.mark.parametrize("scaled", [False, True])
@torch.no_grad()
def test_what_the_compiler_is_told_of_a_gradient_is_what_it_is(scaled):
    x, branch, *grads = (t.detach() for t in randoms(*[(3, 7, 64)] * 4))
    weight = torch.ones(64, device=DEVICE)
    scale = torch.rand(3, device=DEVICE) if scaled else None
    y, _, mean, inverse = norm.forward(x, branch, scale, weight, weight, 1e-6)
    qkv, grad = (t.detach() for t in randoms((3, 70, 96), (3, 70, 32)))
    out, log_sums = attention.forward(qkv, 1, Segments.of(qkv))
    operators, check = torch.ops.wessl, torch.library.opcheck
    check(operators.gelu_backward.default, (x, branch))
    check(operators.add_norm_backward.default, (*grads, y, mean, inverse, scale, weight))
    check(operators.attention_backward.default, (qkv, out, grad, log_sums, 1, [3], [70]))


def test_without_half_precision_on_a_gpu_add_and_norm_run_plainly():
    x, h = torch.randn(3, 5, 8, dtype=torch.float64), torch.randn(3, 5, 16, dtype=torch.float64)
    scale = torch.tensor([0.0, 1.0, 1.25], dtype=torch.float64)
    linear, then = torch.nn.Linear(16, 8).double(), torch.nn.LayerNorm(8, eps=1e-6).double()
    found = kernels.linear_add_norm(x, scale, h, linear, then)
    expected = add_and_norm(x, linear(h), scale, then.weight, then.bias)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)
    y, _ = kernels.linear_add_norm(x, None, h, linear, then)
    torch.testing.assert_close(y, x + linear(h))


def draws(images: Tensor) -> Tensor:
    """For drop-path of three blocks: some pictures lose a branch."""
    return torch.arange(len(images) * 6, device="cuda").reshape(-1, 3, 2) * 0.37 % 1


def gradients(vit: ViT, images: Tensor, compiled: bool) -> list[Tensor]:
    vit.zero_grad()
    cls = torch.compile(vit.cls, fullgraph=True) if compiled else vit.cls
    with torch.autocast("cuda", torch.bfloat16):
        out = cls(images, drop=draws(images))
    (out.float() * torch.linspace(-1, 1, out.shape[1], device="cuda")).sum().backward()
    return [p.grad.clone() for p in vit.parameters()]


@on_gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_a_transformers_gradients_are_as_exact_as_the_plain_ones(monkeypatch, compiled):
    torch.manual_seed(0)
    vit = ViT("T", image_size=112, depth=3, drop_path=0.3).cuda()
    images = torch.randn(8, 3, 112, 112, device="cuda")
    ours = gradients(vit, images, compiled)
    with monkeypatch.context() as patch:
        patch.setattr(kernels, "in_half", lambda x: False)
        patch.setattr(kernels, "stream", lambda x: x)
        plain = gradients(vit, images, False)
    double, images = vit.double(), images.double()
    double.zero_grad()
    out = double.cls(images, drop=draws(images))
    (out * torch.linspace(-1, 1, out.shape[1], device="cuda")).sum().backward()
    exact = [p.grad for p in double.parameters()]
    for a, b, c in zip(ours, plain, exact, strict=True):
        assert distance(a, c) < 2 * distance(b, c) + 1e-2
