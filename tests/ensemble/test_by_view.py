"""A few views at a time or all at once: the same loss and gradients, in less memory."""

import shutil
from functools import partial

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from wessl import multiview_loss
from wessl.bench.memory import peak_bytes
from wessl.ensemble import parts
from wessl.ensemble.by_view import multiview_loss_by_view
from wessl.ensemble.heads import EnsembleHeads
from wessl.ensemble.weighting import SCHEMES, Weighting


def random_heads(m: int, codes: int, **options) -> EnsembleHeads:
    torch.manual_seed(0)
    return EnsembleHeads(6, m, hidden_dim=8, embed_dim=5, num_codes=codes, **options).double()


def a_small_case():
    """Five views of four pictures, three heads of seven codes."""
    heads = random_heads(3, 7)
    x = torch.randn(5 * 4, 6, dtype=torch.float64, requires_grad=True)
    return heads, x, torch.randn(2, 3, 4, 7, dtype=torch.float64).softmax(-1)


def at_once(heads, x, targets, weighting, same_views):
    logits = heads(x).unflatten(1, (-1, targets.shape[2])).transpose(0, 1) / 0.1
    return multiview_loss(logits, targets, weighting, 0.4, same_views)


@pytest.fixture(params=[1, 2, 5])
def together(request, monkeypatch):
    """Views at a time, of five with four pictures each, and three heads of seven codes."""
    monkeypatch.setattr(parts, "PART", request.param * 4 * 3 * 7 * 4)
    return request.param


@pytest.mark.parametrize("same_views", [True, False])
@pytest.mark.parametrize("share", [None, "projection", "codebook"])
@pytest.mark.parametrize("weighting", SCHEMES)
def test_loss_and_gradients_are_those_of_all_views_at_once(weighting, share, same_views, together):
    m, n, c, views = 3, 4, 7, 5
    heads = random_heads(m, c, share=share, weight_norm=True)
    assert parts.views_together(m, c, n) == together
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


@pytest.fixture
def compiles_afresh():
    """What other tests had compiled before must not decide what is compiled here."""
    torch._dynamo.reset()


needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="torch.compile on a CPU needs g++"
)


@pytest.mark.usefixtures("compiles_afresh")
@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=needs_compiler)])
def test_it_holds_the_logits_of_a_view_or_two(monkeypatch, compiled):
    monkeypatch.setattr(parts, "PART", 0)
    heads, n, views = random_heads(1, 20_000), 8, 12
    x = torch.randn(views * n, 6, dtype=torch.float64, requires_grad=True)
    targets = torch.randn(2, 1, n, 20_000, dtype=torch.float64).softmax(-1)
    few = partial(multiview_loss_by_view, heads)
    if compiled:  # which would have the logits of all first, where nothing forbids it
        few = torch.compile(few, dynamic=False)

    def of_all() -> None:
        at_once(heads, x, targets, "unif", True).backward()

    def of_few() -> None:
        few(x, 0.1, targets, "unif").backward()

    of_few()
    for_all, for_few = (peak_bytes(work, torch.device("cpu")) for work in (of_all, of_few))
    logits = 8 * 20_000 * n
    assert for_all > 2 * views * logits
    assert for_few < views * logits


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


def forward_operations(heads, x, targets) -> int:
    with FlopCounterMode(display=False) as counter:
        multiview_loss_by_view(heads, x, 0.1, targets, "ent", 0.4)
    return counter.get_total_flops()


@pytest.mark.parametrize("share", [None, "projection", "codebook"])
def test_gradients_that_nobody_wants_are_not_computed(share):
    heads = random_heads(3, 7, share=share)
    x, targets = a_small_case()[1:]
    product = 2 * 3 * 7 * 5 * 5 * 4  # heads, codes, embedding, views, pictures
    every = forward_operations(heads, x, targets)
    with torch.no_grad():
        none = forward_operations(heads, x, targets)
    assert every - none == 2 * product
    expected = at_once(heads, x, targets, "ent", True)
    with torch.no_grad():
        torch.testing.assert_close(
            multiview_loss_by_view(heads, x, 0.1, targets, "ent", 0.4), expected
        )
    heads.projection.requires_grad_(False)
    frozen = x.detach()
    assert every - forward_operations(heads, frozen, targets) == product
    found = multiview_loss_by_view(heads, frozen, 0.1, targets, "ent", 0.4)
    (ours,) = torch.autograd.grad(found, heads.codebook)
    (theirs,) = torch.autograd.grad(at_once(heads, frozen, targets, "ent", True), heads.codebook)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.usefixtures("compiles_afresh")
def test_one_graph_serves_batches_of_several_sizes():
    heads = random_heads(3, 7)
    loss = torch.compile(partial(multiview_loss_by_view, heads), fullgraph=True, backend="eager")
    for n in (4, 6, 9):
        x = torch.randn(5 * n, 6, dtype=torch.float64)
        targets = torch.randn(2, 3, n, 7, dtype=torch.float64).softmax(-1)
        expected = at_once(heads, x, targets, "ent", True)
        torch.testing.assert_close(loss(x, 0.1, targets, "ent", 0.4), expected)


@needs_compiler
@pytest.mark.usefixtures("compiles_afresh")
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


def test_as_many_views_go_together_as_have_few_logits():
    assert parts.views_together(16, 1024, 256) == 4
    assert parts.views_together(1, 1024, 256) == 64
    assert parts.views_together(1, 65_536, 512) == 1


def test_targets_are_folded_once_a_view():
    calls = []

    def scored(log_ps, log_pt):
        calls.append(1)
        return (log_ps + log_pt)[:, :, None, :]

    heads, x, targets = a_small_case()
    own = Weighting(scored)
    found = multiview_loss_by_view(heads, x, 0.1, targets, own, 0.4)
    once = len(calls)
    torch.testing.assert_close(found, at_once(heads, x, targets, own, True))
    assert len(calls) == 2 * once


def test_a_second_derivative_is_refused_and_not_wrong():
    heads, x, targets = a_small_case()
    loss = multiview_loss_by_view(heads, x, 0.1, targets, "ent", 0.4)
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(loss, x, create_graph=True)


def test_a_teacher_of_double_precision_teaches_single():
    heads, x, targets = a_small_case()
    loss = multiview_loss_by_view(heads.float(), x.detach().float(), 0.1, targets, "ent", 0.4)
    loss.backward()
    assert loss.dtype == torch.float64
    assert heads.codebook.grad.dtype == torch.float32
    expected = at_once(heads, x.detach().float(), targets, "ent", True)
    torch.testing.assert_close(loss, expected)


def test_rows_that_are_no_whole_views_are_named():
    heads, x, targets = a_small_case()
    with pytest.raises(ValueError, match=r"19 .* no whole number of views.* 4 pictures each"):
        multiview_loss_by_view(heads, x[1:], 0.1, targets, "ent", 0.4)
    with pytest.raises(ValueError, match=r"\(V n, in_dim\), view by view, not \(5, 4, 6\)"):
        multiview_loss_by_view(heads, x.unflatten(0, (5, 4)), 0.1, targets, "ent", 0.4)


@pytest.mark.parametrize("tau", [0.0, -1.0, float("nan"), float("inf"), torch.tensor(0.0)])
def test_a_student_temperature_that_cannot_be_is_named(tau):
    heads, x, targets = a_small_case()
    with pytest.raises(ValueError, match="positive finite"):
        multiview_loss_by_view(heads, x, tau, targets, "ent", 0.4)


def test_a_student_temperature_may_be_a_tensor_but_learns_nothing():
    heads, x, targets = a_small_case()
    tau = torch.tensor(0.1, dtype=torch.float64)
    found = multiview_loss_by_view(heads, x, tau, targets, "ent", 0.4)
    torch.testing.assert_close(found, at_once(heads, x, targets, "ent", True))
    theirs = torch.autograd.grad(at_once(heads, x, targets, "ent", True), x)
    torch.testing.assert_close(torch.autograd.grad(found, x), theirs)
    with pytest.raises(ValueError, match="gets no gradient here: use multiview_loss"):
        multiview_loss_by_view(heads, x, tau.requires_grad_(), targets, "ent", 0.4)


def test_targets_of_whole_numbers_are_refused_as_by_multiview_loss():
    heads, x, targets = a_small_case()
    whole = torch.nn.functional.one_hot(targets.argmax(-1), 7)
    with pytest.raises(ValueError, match="floating-point"):
        multiview_loss_by_view(heads, x, 0.1, whole, "ent", 0.4)


def test_targets_of_other_heads_or_codes_and_logarithms_are_named():
    heads, x, targets = a_small_case()
    with pytest.raises(ValueError, match=r"agree in heads.*got \(5, 3, 4, 7\) and \(2, 2, 4, 7\)"):
        multiview_loss_by_view(heads, x, 0.1, targets[:, :2], "ent", 0.4)
    with pytest.raises(ValueError, match="student logits"):
        multiview_loss_by_view(heads, x, 0.1, targets[0], "ent", 0.4)
    with pytest.raises(ValueError, match="probabilities"):
        multiview_loss_by_view(heads, x, 0.1, targets.log(), "ent", 0.4)
    with pytest.raises(ValueError, match="more views"):
        multiview_loss_by_view(heads, x[:4], 0.1, targets, "ent", 0.4)
