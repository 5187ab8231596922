"""View by view or all at once: the same loss and gradients, in less memory."""

import shutil
from functools import partial

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from wessl import ViT, multiview_loss
from wessl.bench.memory import peak_bytes
from wessl.config import LossConfig
from wessl.ensemble import by_view
from wessl.ensemble.by_view import multiview_loss_by_view, too_large_at_once
from wessl.ensemble.heads import EnsembleHeads
from wessl.ensemble.weighting import SCHEMES
from wessl.pretrain.model import Model
from wessl.pretrain.step import Views, student_step


def random_heads(m: int, codes: int, **options) -> EnsembleHeads:
    torch.manual_seed(0)
    return EnsembleHeads(6, m, hidden_dim=8, embed_dim=5, num_codes=codes, **options).double()


def at_once(heads, x, targets, weighting, same_views):
    logits = heads(x).unflatten(1, (-1, targets.shape[2])).transpose(0, 1) / 0.1
    return multiview_loss(logits, targets, weighting, 0.4, same_views)


@pytest.mark.parametrize("same_views", [True, False])
@pytest.mark.parametrize("share", [None, "projection", "codebook"])
@pytest.mark.parametrize("weighting", SCHEMES)
def test_loss_and_gradients_are_those_of_all_views_at_once(weighting, share, same_views):
    m, n, c, views = 3, 4, 7, 5
    heads = random_heads(m, c, share=share, weight_norm=True)
    x = torch.randn(views * n, 6, dtype=torch.float64, requires_grad=True)
    targets = torch.randn(2, m, n, c, dtype=torch.float64).softmax(-1)
    expected = at_once(heads, x, targets, weighting, same_views)
    found = multiview_loss_by_view(heads, x, 0.1, targets, weighting, 0.4, same_views)
    torch.testing.assert_close(found, expected)
    leaves = [x, *heads.parameters()]
    ours = torch.autograd.grad(found, leaves, allow_unused=True)
    theirs = torch.autograd.grad(expected, leaves, allow_unused=True)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_batch_norm_sees_all_views_together():
    heads = random_heads(3, 7, batch_norm=True)
    x = torch.randn(5 * 4, 6, dtype=torch.float64, requires_grad=True)
    targets = torch.randn(2, 3, 4, 7, dtype=torch.float64).softmax(-1)
    expected = at_once(heads, x, targets, "ent", True)
    found = multiview_loss_by_view(heads, x, 0.1, targets, "ent", 0.4)
    torch.testing.assert_close(found, expected)
    ours, theirs = torch.autograd.grad(found, x), torch.autograd.grad(expected, x)
    torch.testing.assert_close(ours, theirs)


def test_it_holds_the_logits_of_a_view_or_two():
    heads, n, views = random_heads(1, 20_000), 8, 12
    x = torch.randn(views * n, 6, dtype=torch.float64, requires_grad=True)
    targets = torch.randn(2, 1, n, 20_000, dtype=torch.float64).softmax(-1)
    cpu = torch.device("cpu")
    for_all = peak_bytes(lambda: at_once(heads, x, targets, "unif", True).backward(), cpu)
    for_one = peak_bytes(
        lambda: multiview_loss_by_view(heads, x, 0.1, targets, "unif").backward(), cpu
    )
    logits = 8 * 20_000 * n
    assert for_all > 2 * views * logits
    assert for_one < views * logits


@pytest.fixture
def compiles_afresh():
    """What other tests had compiled before must not decide what is compiled here."""
    torch._dynamo.reset()


@pytest.mark.usefixtures("compiles_afresh")
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("share", [None, "projection", "codebook"])
def test_compiled_in_one_graph_it_is_the_same(share, held):
    heads = random_heads(3, 7, share=share)
    heads.codebook.requires_grad_(not held)
    x = torch.randn(5 * 4, 6, dtype=torch.float64, requires_grad=True)
    targets = torch.randn(2, 3, 4, 7, dtype=torch.float64).softmax(-1)
    plain = partial(multiview_loss_by_view, heads)
    compiled = torch.compile(plain, backend="aot_eager", fullgraph=True)
    losses = [loss(x, 0.1, targets, "ent", 0.4) for loss in (plain, compiled)]
    torch.testing.assert_close(*losses)
    leaves = [x, *(p for p in heads.parameters() if p.requires_grad)]
    for a, b in zip(*(torch.autograd.grad(loss, leaves) for loss in losses), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.usefixtures("compiles_afresh")
@pytest.mark.parametrize("compiled", [False, True])
def test_in_half_precision_it_is_close_to_all_at_once(compiled):
    torch.manual_seed(0)
    heads = EnsembleHeads(32, 3, hidden_dim=48, embed_dim=16, num_codes=24)
    x = torch.randn(5 * 8, 32, requires_grad=True)
    targets = torch.randn(2, 3, 8, 24).softmax(-1)
    leaves = [x, *heads.parameters()]
    loss = partial(multiview_loss_by_view, heads)
    if compiled:
        loss = torch.compile(loss, backend="aot_eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16):
        found = loss(x, 0.1, targets, "ent", 0.4)
        expected = at_once(heads, x, targets, "ent", True)
    ours, theirs = torch.autograd.grad(found, leaves), torch.autograd.grad(expected, leaves)
    # Cosines are of fp32 either way, and a compiler may leave out a rounding before them.
    torch.testing.assert_close(found, expected, rtol=1e-3 if compiled else 1e-5, atol=0)
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype == torch.float32
        assert (a - b).norm() < (2e-2 if compiled else 1e-4) * b.norm()


def test_double_precision_stays_that_under_autocast():
    heads, x = random_heads(3, 7), torch.randn(5 * 4, 6, dtype=torch.float64)
    targets = torch.randn(2, 3, 4, 7, dtype=torch.float64).softmax(-1)
    plain = multiview_loss_by_view(heads, x, 0.1, targets, "ent", 0.4)
    with torch.autocast("cpu", torch.bfloat16):
        found = multiview_loss_by_view(heads, x, 0.1, targets, "ent", 0.4)
    torch.testing.assert_close(found, plain)


def test_weights_that_are_held_still_get_no_gradient_and_cost_none():
    heads = random_heads(2, 7)
    x = torch.randn(5 * 4, 6, dtype=torch.float64, requires_grad=True)
    targets = torch.randn(2, 2, 4, 7, dtype=torch.float64).softmax(-1)

    def operations() -> int:
        with FlopCounterMode(display=False) as counter:
            multiview_loss_by_view(heads, x, 0.1, targets, "ent", 0.4).backward()
        return counter.get_total_flops()

    free = operations()
    heads.zero_grad()
    heads.codebook.requires_grad_(False)
    held = operations()
    assert heads.codebook.grad is None
    assert free - held == 2 * 2 * 7 * 5 * 5 * 4  # the products that were its gradient


@pytest.mark.usefixtures("compiles_afresh")
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile on a CPU needs g++")
def test_compiled_it_does_not_keep_the_codes_gradients_of_every_view():
    """Summed at the end, those of six views would be six times the codes."""
    torch.manual_seed(0)
    n, views = 2, 6
    heads = EnsembleHeads(8, 2, hidden_dim=8, depth=2, embed_dim=512, num_codes=1024)
    x = torch.randn(views * n, 8, requires_grad=True)
    targets = torch.randn(2, 2, n, 1024).softmax(-1)
    loss = torch.compile(partial(multiview_loss_by_view, heads), dynamic=False)

    def step() -> None:
        loss(x, 0.1, targets, "ent", 0.4).backward()

    step()
    assert peak_bytes(step, torch.device("cpu")) < 5 * 4 * heads.codebook.numel()


def test_only_large_logits_go_view_by_view():
    paper = EnsembleHeads(6, 16, 8, num_codes=1024)
    assert not too_large_at_once(paper, 256, 12)
    assert not too_large_at_once(paper, 256, 12, "cuda")
    assert too_large_at_once(paper, 512, 12, "cuda")
    large = EnsembleHeads(6, 1, 8, num_codes=65_536)
    assert too_large_at_once(large, 256, 12)
    assert not too_large_at_once(large, 128, 12)
    assert not too_large_at_once(large, 64, 12, "cuda")
    assert too_large_at_once(large, 96, 12, "cuda")


def test_a_training_step_goes_view_by_view_where_the_logits_are_large(monkeypatch):
    vit = ViT("T", patch_size=4, image_size=8, dim=8, depth=2, heads=2)
    student = Model(vit, EnsembleHeads(8, 2, 8, num_codes=7)).double()
    images = torch.randn(5 * 3, 3, 8, 8, dtype=torch.float64)
    views = Views(3, [images[:6]], [images])
    targets = torch.randn(2, 2, 3, 7, dtype=torch.float64).softmax(-1)
    found = []
    for limit, by_views in ((2**29, False), (0, True)):
        monkeypatch.setitem(by_view.AT_ONCE, "cpu", limit)
        assert too_large_at_once(student.heads, 3, 5) == by_views
        loss, terms = student_step(student, views, targets, LossConfig(), 0.4)
        gradients = torch.autograd.grad(loss, list(vit.parameters()))
        found.append([loss, terms, *gradients])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)
