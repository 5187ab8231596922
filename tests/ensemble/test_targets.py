import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wessl import Centering, me_max, sharpen, sinkhorn


def plain_sinkhorn(logits_nc, temperature, iterations):
    """The textbook loop on one head, outside log space."""
    q = (logits_nc.double() / temperature).exp()
    for _ in range(iterations):
        q = q / q.sum(0, keepdim=True)
        q = q / q.sum(1, keepdim=True)
    return q


@given(
    m=st.integers(1, 3),
    n=st.integers(1, 9),
    c=st.integers(1, 7),
    temperature=st.floats(0.05, 2),
    iterations=st.integers(1, 5),
)
@settings(max_examples=40, deadline=None)
def test_sinkhorn_equals_the_textbook_loop_for_every_head(m, n, c, temperature, iterations):
    logits = torch.rand(m, n, c, dtype=torch.float64) * 2 - 1
    ours = sinkhorn(logits, temperature, iterations)
    for head in range(m):
        torch.testing.assert_close(
            ours[head], plain_sinkhorn(logits[head], temperature, iterations)
        )


@pytest.mark.parametrize("temperature", [1.0, 0.025, 0.001])
def test_sinkhorn_rows_are_distributions_at_any_temperature(temperature):
    logits = torch.rand(4, 64, 32) * 2 - 1
    targets = sinkhorn(logits, temperature)
    assert targets.isfinite().all()
    # Scores reach 1 / temperature, and fp32 rounds their logarithms in proportion.
    near = max(1e-5, 2e-7 / temperature)
    torch.testing.assert_close(targets.sum(-1), torch.ones(4, 64), rtol=0, atol=near)


def test_many_sinkhorn_iterations_use_all_codes_equally():
    targets = sinkhorn(torch.rand(2, 60, 12, dtype=torch.float64), 0.1, iterations=200)
    torch.testing.assert_close(targets.sum(1), torch.full((2, 12), 60 / 12, dtype=torch.float64))


def test_sinkhorn_spreads_a_batch_that_collapsed_to_one_code():
    logits = 0.01 * torch.rand(1, 64, 8)
    logits[..., 0] += 1
    assert sharpen(logits, 0.05).argmax(-1).unique().numel() == 1
    assert sinkhorn(logits, 0.05).sum(1).amin() > 64 / 8 * 0.9


def test_sinkhorn_can_return_logarithms_and_takes_low_precision():
    logits = torch.rand(2, 8, 4).bfloat16()
    torch.testing.assert_close(sinkhorn(logits, 0.1, log=True).exp(), sinkhorn(logits, 0.1))
    assert sinkhorn(logits, 0.1).dtype == torch.float32


def test_sinkhorn_gives_no_gradient():
    assert not sinkhorn(torch.rand(1, 4, 4, requires_grad=True), 0.1).requires_grad


def test_sharpening_is_the_softmax_at_the_temperature():
    logits = torch.rand(2, 5, 7)
    torch.testing.assert_close(sharpen(logits, 0.025), (logits / 0.025).softmax(-1))


def test_the_centre_is_used_before_it_is_updated():
    centering = Centering(2, 5, momentum=0.9)
    first, second = torch.randn(2, 2, 8, 5)
    torch.testing.assert_close(centering(first, 0.04), (first / 0.04).softmax(-1))
    centre = 0.1 * first.mean(1, keepdim=True)
    torch.testing.assert_close(centering.center, centre)
    torch.testing.assert_close(centering(second, 0.04), ((second - centre) / 0.04).softmax(-1))
    torch.testing.assert_close(centering.center, 0.9 * centre + 0.1 * second.mean(1, keepdim=True))


def test_the_centre_stays_in_evaluation_and_is_part_of_the_state():
    centering = Centering(1, 3).eval()
    centering(torch.randn(1, 4, 3), 0.04)
    assert (centering.center == 0).all()
    assert list(centering.state_dict()) == ["center"]


def test_me_max_is_ln_c_minus_the_entropy_of_the_mean_averaged_over_heads():
    p = torch.randn(3, 16, 5, dtype=torch.float64).softmax(-1)
    entropies = [-(q * q.log()).sum() for q in p.mean(1)]
    torch.testing.assert_close(me_max(p), math.log(5) - sum(entropies) / 3)


def test_me_max_by_weights_is_that_mean_of_the_heads_own():
    p, weights = torch.randn(3, 16, 5).softmax(-1), torch.tensor([0.5, 0.2, 0.3])
    alone = torch.stack([me_max(head[None]) for head in p])
    torch.testing.assert_close(me_max(p, weights=weights), (weights * alone).sum())
    torch.testing.assert_close(me_max(p, weights=8 * weights.double()), (weights * alone).sum())
    learnt = weights.clone().requires_grad_()
    assert not me_max(p, weights=learnt).requires_grad
    assert me_max(p, weights=weights * math.nan).isnan()  # so that a bad step can be skipped
    prior = torch.tensor([0.4, 0.3, 0.1, 0.1, 0.1])
    alone = torch.stack([me_max(head[None], prior) for head in p])
    torch.testing.assert_close(me_max(p, prior, weights=weights), (weights * alone).sum())


def test_me_max_is_zero_for_even_use_and_ln_c_for_one_code():
    torch.testing.assert_close(me_max(torch.eye(4)[None]), torch.tensor(0.0))
    one_code = torch.zeros(1, 6, 4).index_fill_(2, torch.tensor([0]), 1.0).requires_grad_()
    loss = me_max(one_code)
    loss.backward()
    torch.testing.assert_close(loss, torch.tensor(math.log(4)))
    assert one_code.grad.isfinite().all()


def test_me_max_with_a_prior_is_the_divergence_from_it():
    p = torch.randn(2, 16, 4, dtype=torch.float64).softmax(-1)
    prior = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    mean = p.mean(1)
    torch.testing.assert_close(me_max(p, prior), (mean * (mean / prior).log()).sum(-1).mean())
    torch.testing.assert_close(me_max(p, mean), torch.tensor(0.0, dtype=torch.float64))
    torch.testing.assert_close(me_max(p, torch.ones(4)), me_max(p))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sinkhorn(torch.zeros(4, 8), 0.1), r"\(m, n, c\) and not empty, got \(4, 8\)"),
        (lambda: sinkhorn(torch.zeros(1, 4, 8), 0.0), "positive finite number, got 0.0"),
        (lambda: sinkhorn(torch.zeros(1, 4, 8), 0.1, iterations=0), "at least 1, got 0"),
        (lambda: sharpen(torch.zeros(1, 0, 8), 0.1), r"got \(1, 0, 8\)"),
        (lambda: Centering(2, 8)(torch.zeros(1, 4, 8), 0.1), "2 heads and 8 codes"),
        (lambda: Centering(2, 8, momentum=2), r"\[0, 1\], got 2"),
        (lambda: me_max(torch.zeros(4, 8)), r"got \(4, 8\)"),
        (lambda: me_max(torch.ones(1, 4, 8) / 8, torch.ones(7)), r"\(8,\) or \(1, 8\), got \(7,\)"),
        (lambda: me_max(torch.ones(1, 4, 2) / 2, torch.tensor([1.0, 0.0])), "positive for every"),
        (lambda: me_max(torch.ones(3, 4, 2) / 2, weights=torch.ones(2)), r"\(3,\), got \(2,\)"),
        (lambda: me_max(torch.ones(2, 4, 2) / 2, weights=torch.zeros(2)), "nor all of them 0"),
        (lambda: me_max(torch.ones(2, 4, 2) / 2, weights=torch.tensor([2.0, -1])), "be negative"),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
