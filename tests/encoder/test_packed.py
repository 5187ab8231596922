"""Batches of different resolutions in one stream of tokens, beside a pass for each.

On a GPU, or with Triton and ``TRITON_INTERPRET=1`` on a CPU, the kernels run too.
"""

import os

import pytest
import torch
from torch import Tensor

from wessl.encoder import kernels
from wessl.encoder.kernels import attention, norm
from wessl.encoder.segments import Segments
from wessl.encoder.vit import ViT

INTERPRETED = attention.AVAILABLE and os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
HALF = torch.float16 if INTERPRETED else torch.bfloat16  # bf16 is wrong in the interpreter
ROUNDING = 5e-3 if INTERPRETED else 3e-2
"""How far half precision may come apart in three blocks."""

on_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
by_triton = pytest.mark.skipif(DEVICE == "cpu" and not INTERPRETED, reason="needs a GPU")


def distance(ours: Tensor, exact: Tensor) -> float:
    ours, exact = ours.detach().double(), exact.detach().double()
    return float((ours - exact).norm() / exact.norm())


def random(*shape: int) -> Tensor:
    return torch.randn(shape, device=DEVICE)


def vit_and_inputs(dtype: torch.dtype) -> tuple[ViT, dict[str, list[Tensor]]]:
    """Two resolutions; some pictures lose a branch; patches are removed from the large ones."""
    torch.manual_seed(0)
    options = dict(patch_size=4, image_size=16, dim=32, depth=3, heads=2, drop_path=0.4)
    vit = ViT("T", **options)
    with torch.no_grad():  # larger than at the start, so that every part matters
        for p in vit.parameters():
            p.add_(0.1 * torch.randn_like(p))
    images = [torch.randn(2, 3, 16, 20), torch.randn(5, 3, 8, 8)]
    keep = [torch.stack([torch.randperm(20)[:16] for _ in range(2)]), None]
    drop = [torch.arange(6 * b).reshape(b, 3, 2) * 0.37 % 1 for b in (2, 5)]
    given = dict(images=images, keep=keep, drop=drop)
    given = {name: [x if x is None else x.to(DEVICE) for x in many] for name, many in given.items()}
    given["images"] = [x.to(dtype) for x in given["images"]]
    return vit.to(DEVICE, dtype).train(), given


def outputs_and_gradients(run, vit: ViT, **given) -> tuple[list[Tensor], list[Tensor]]:
    vit.zero_grad()
    outputs = run(**given)
    for out in outputs:
        direction = torch.linspace(-1, 1, out[0].numel(), device=DEVICE).view_as(out[0])
        (out * direction).mean().backward(retain_graph=True)
    return outputs, [p.grad.clone() for p in vit.parameters()]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("method", ["forward", "cls"])
def test_one_stream_gives_what_a_pass_a_resolution_gives(monkeypatch, method, compiled):
    vit, given = vit_and_inputs(torch.float64)
    apart, wanted = outputs_and_gradients(getattr(vit, method), vit, **given)
    monkeypatch.setattr(kernels, "share_a_stream", lambda batches, heads: True)
    streams = []
    vit.norm.register_forward_hook(lambda _, inputs, __: streams.append(inputs[0].shape))
    run = getattr(vit, method)
    if compiled:
        run = torch.compile(run, backend="aot_eager", fullgraph=True)
    packed, found = outputs_and_gradients(run, vit, **given)
    assert streams == [(2 * 17 + 5 * 5 if method == "forward" else 2 + 5, 32)]
    for a, b in zip(packed + found, apart + wanted, strict=True):  # positions are fp32
        torch.testing.assert_close(a, b, rtol=1e-5, atol=2e-6)


def test_pictures_in_one_stream_draw_their_own_paths(monkeypatch):
    vit, given = vit_and_inputs(torch.float64)
    monkeypatch.setattr(kernels, "share_a_stream", lambda batches, heads: True)
    one = [x[:1].expand(200, -1, -1, -1) for x in given["images"]]
    for out in vit(one):  # one picture 200 times: as many outputs as ways through the blocks
        assert 8 < len(out.flatten(1).unique(dim=0)) <= 16
    for out in vit.eval()(one):
        assert len(out.flatten(1).unique(dim=0)) == 1


def test_without_the_kernels_each_resolution_has_its_pass():
    vit, given = vit_and_inputs(torch.float64)
    passes = []
    vit.blocks[0].register_forward_hook(lambda _, inputs, __: passes.append(len(inputs[0])))
    vit.cls(**given)
    assert passes == [2, 5]
    assert not kernels.share_a_stream([torch.zeros(2, 5, 64)] * 2, 1)


@by_triton
@pytest.mark.parametrize("heads", [1, 3])
@pytest.mark.parametrize(
    ("pictures", "tokens"),
    [([2, 5], [197, 37]), ([1, 3, 2], [1, 17, 65]), ([3, 2], [65, 130]), ([4], [50])],
)
def test_attention_within_a_stream_equals_float64_of_each_batch(pictures, tokens, heads):
    segments, dim = Segments(pictures, tokens), heads * 32
    rows = sum(segments.rows())
    qkv = random(rows, 3 * dim).to(HALF).requires_grad_()
    bias = torch.zeros(3 * dim, device=DEVICE, requires_grad=True)
    grad = random(rows, dim).to(HALF)
    exact = qkv.detach().double().requires_grad_()
    expected = kernels.attention_plain(exact, heads, segments)
    expected.backward(grad.double())
    out = attention.apply(qkv, bias, heads, segments)
    out.backward(grad)
    assert out.shape == (rows, dim)
    for a, b, c, d in zip(*map(segments.split, (out, expected, qkv.grad, exact.grad)), strict=True):
        assert distance(a, b) < 4e-3
        assert distance(c, d) < 5e-3
    # The keys' part is left out: exactly, it is 0.
    ours, sums = (x.clone() for x in (bias.grad, exact.grad.sum(0)))
    ours[dim : 2 * dim] = sums[dim : 2 * dim] = 0
    assert distance(ours, sums) < 5e-3


@by_triton
def test_a_number_for_each_token_scales_like_one_for_each_picture():
    x, branch, grad_y, grad_normed = (random(3, 11, 96).to(HALF) for _ in range(4))
    scale, weight = torch.rand(3, device=DEVICE), random(96)
    of_pictures = norm.forward(x, branch, scale, weight, weight, 1e-6)
    flat = [t.flatten(0, 1) for t in (x, branch, grad_y, grad_normed)]
    scales = scale.repeat_interleave(11)
    of_tokens = norm.forward(*flat[:2], scales, weight, weight, 1e-6)
    y, _, mean, inverse = of_pictures
    back = norm.backward(grad_y, grad_normed, y, mean, inverse, scale, weight)
    y, _, mean, inverse = of_tokens
    back_flat = norm.backward(*flat[2:], y, mean, inverse, scales, weight)
    for a, b in zip(of_tokens + back_flat, of_pictures + back, strict=True):
        assert torch.equal(a, b.view_as(a))


@by_triton
@pytest.mark.parametrize("method", ["forward", "cls"])
def test_in_half_precision_one_stream_gives_what_a_pass_a_resolution_gives(monkeypatch, method):
    vit, given = vit_and_inputs(HALF)
    if DEVICE == "cpu":
        monkeypatch.setattr(kernels, "in_half", lambda x: True)
    calls = []
    real = attention.apply
    monkeypatch.setattr(attention, "apply", lambda *a: (calls.append(a[3]), real(*a))[1])
    packed, found = outputs_and_gradients(getattr(vit, method), vit, **given)
    assert calls == [Segments([2, 5], [17, 5])] * (3 if method == "forward" else 2)
    monkeypatch.setattr(vit, "packed", False)
    apart, wanted = outputs_and_gradients(getattr(vit, method), vit, **given)
    for a, b in zip(packed, apart, strict=True):
        assert a.shape == b.shape
        assert distance(a, b) < ROUNDING
    for (name, _), a, b in zip(vit.named_parameters(), found, wanted, strict=True):
        assert distance(a, b) < ROUNDING, name


@on_gpu
def test_a_compiled_stream_has_the_gradients_of_a_pass_a_resolution():
    vit, given = vit_and_inputs(torch.float32)
    with torch.autocast("cuda", torch.bfloat16):
        compiled = torch.compile(vit.cls, fullgraph=True)
        packed, found = outputs_and_gradients(compiled, vit, **given)
        vit.packed = False
        apart, wanted = outputs_and_gradients(vit.cls, vit, **given)
    for a, b in zip(packed + found, apart + wanted, strict=True):
        assert distance(a, b) < ROUNDING
