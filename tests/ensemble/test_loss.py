import loss_oracle as oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wessl import Weighting, ensemble_loss, head_shares, multiview_loss
from wessl.ensemble.weighting import SCHEMES

shapes = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(2, 5))
gammas = st.floats(0.05, 5.0)
seeds = st.integers(0, 2**31)
OWN = Weighting(lambda log_ps, log_pt: log_ps[:, None] * log_pt[:, :, None])  # all of (b, m, m, c)


def log_probs(seed, shape, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    z = scale * torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    return z.log_softmax(-1)


def value_and_gradient(loss, z):
    z = z.clone().requires_grad_()
    value = loss(z)
    value.backward()
    return value.detach(), z.grad


@pytest.mark.parametrize("name", oracle.NAMES)
@given(shape=shapes, gamma=gammas, seed=seeds)
@settings(max_examples=12, deadline=None)
def test_gradients_are_the_general_forms_and_so_are_values_except_probs(name, shape, gamma, seed):
    z, log_pt = log_probs(seed, shape)
    value, gradient = value_and_gradient(
        lambda z: ensemble_loss(z.log_softmax(-1), log_pt, name, gamma), z
    )
    w = oracle.weights(name, z.log_softmax(-1), log_pt, gamma)
    general, expected = value_and_gradient(
        lambda z: oracle.general_loss(w, z.log_softmax(-1), log_pt), z
    )
    torch.testing.assert_close(gradient, expected)
    if name == "prob":
        general = oracle.cross_entropy_of_averages(z.log_softmax(-1), log_pt, gamma)
    torch.testing.assert_close(value, general)


@pytest.mark.parametrize("name", oracle.NAMES)
@pytest.mark.parametrize("hard", [False, True])
def test_aligned_and_hard_variants_are_the_general_form_too(name, hard):
    z, log_pt = log_probs(12, (2, 3, 4))
    weighting = Weighting(name, aligned=True, hard=hard)
    ours = value_and_gradient(lambda z: ensemble_loss(z.log_softmax(-1), log_pt, weighting, 0.6), z)
    hard = hard or name in oracle.HARD
    w = oracle.weights(name, z.log_softmax(-1), log_pt, 0.6, aligned=True, hard=hard)
    expected = value_and_gradient(lambda z: oracle.general_loss(w, z.log_softmax(-1), log_pt), z)
    torch.testing.assert_close(ours, expected)


def test_values_are_algorithm_1s():
    log_ps, log_pt = log_probs(1, (4, 3, 6))
    pt, tau = log_pt.exp(), 0.2
    per_head = -(pt * log_ps).sum(-1)
    unif = per_head.mean(1).mean()
    prob = -(pt.mean(1) * log_ps.exp().mean(1).log()).sum(-1).mean()
    entropies = -(pt * log_pt).sum(-1)
    ent = ((-entropies / tau).softmax(1) * per_head).sum(1).mean()
    torch.testing.assert_close(ensemble_loss(log_ps, log_pt, "unif"), unif)
    torch.testing.assert_close(ensemble_loss(log_ps, log_pt, "prob"), prob)
    torch.testing.assert_close(ensemble_loss(log_ps, log_pt, "ent", tau), ent)


@pytest.mark.parametrize("name", oracle.NAMES)
@given(gamma=gammas, seed=seeds)
@settings(max_examples=10, deadline=None)
def test_with_one_head_every_weighting_is_the_base_loss(name, gamma, seed):
    log_ps, log_pt = log_probs(seed, (3, 1, 5))
    base = -(log_pt.exp() * log_ps).sum(-1).mean()
    for weighting in (name, Weighting(name, aligned=True), Weighting(name, hard=True)):
        torch.testing.assert_close(ensemble_loss(log_ps, log_pt, weighting, gamma), base)


@pytest.mark.parametrize("name", oracle.NAMES)
def test_identical_heads_make_every_weighting_the_base_loss(name):
    log_ps, log_pt = (x.expand(3, 4, 5) for x in log_probs(2, (3, 1, 5)))
    base = -(log_pt.exp() * log_ps).sum(-1).mean()
    torch.testing.assert_close(ensemble_loss(log_ps, log_pt, name), base)


def test_ent_tends_to_unif_and_to_the_single_surest_head():
    log_ps, log_pt = log_probs(3, (4, 5, 7))
    hot = ensemble_loss(log_ps, log_pt, "ent", 1e9)
    torch.testing.assert_close(hot, ensemble_loss(log_ps, log_pt, "unif"))
    surest = (log_pt.exp() * log_pt).sum(-1).argmax(1)
    alone = -(log_pt.exp() * log_ps).sum(-1)[torch.arange(4), surest].mean()
    torch.testing.assert_close(ensemble_loss(log_ps, log_pt, "ent", 1e-7), alone)


@given(shape=shapes, seed=seeds)
@settings(max_examples=100, deadline=None)
def test_prob_is_at_most_unif_all_and_below_unif_up_to_entropies(shape, seed):
    log_ps, log_pt = log_probs(seed, shape)
    pt = log_pt.exp()
    prob, unif, unif_all = (
        ensemble_loss(log_ps, log_pt, name) for name in ("prob", "unif", "unif-all")
    )
    assert prob <= unif_all + 1e-12
    entropy_of_mean = -torch.special.xlogy(pt.mean(1), pt.mean(1)).sum(-1).mean()
    mean_of_entropies = -(pt * log_pt).sum(-1).mean()
    assert prob - entropy_of_mean <= unif - mean_of_entropies + 1e-12


def test_no_gradient_reaches_the_teacher():
    log_ps, log_pt = (x.requires_grad_() for x in log_probs(4, (2, 3, 4)).unbind())
    for name in oracle.NAMES:
        ensemble_loss(log_ps, log_pt, name).backward()
    assert log_ps.grad is not None
    assert log_pt.grad is None


@pytest.mark.parametrize("name", oracle.NAMES)
def test_a_teacher_with_zeros_gives_finite_losses_and_gradients(name):
    log_ps = log_probs(5, (2, 3, 4))[0].requires_grad_()
    pt = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64).repeat(2, 3, 1)
    loss = ensemble_loss(log_ps, pt.log(), name)
    loss.backward()
    assert loss.isfinite()
    assert log_ps.grad.isfinite().all()


def test_a_student_that_excludes_what_the_teacher_believes_loses_infinitely():
    log_ps = torch.tensor([[[0.0, 1.0]]]).log()
    assert ensemble_loss(log_ps, torch.tensor([[[0.5, 0.5]]]).log(), "ent") == float("inf")
    assert ensemble_loss(log_ps, torch.tensor([[[0.0, 1.0]]]).log(), "ent") == 0


def test_prob_is_exact_at_very_large_and_very_small_temperatures_in_fp32():
    log_ps, log_pt = log_probs(6, (4, 5, 7))
    for gamma, limit in ((1e6, "unif-all"), (1e-3, None)):
        low = ensemble_loss(log_ps.float(), log_pt.float(), "prob", gamma).double()
        torch.testing.assert_close(
            low, ensemble_loss(log_ps, log_pt, "prob", gamma), rtol=1e-5, atol=1e-5
        )
        if limit:
            expected = ensemble_loss(log_ps, log_pt, limit)
            torch.testing.assert_close(low, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", oracle.NAMES)
def test_a_code_that_student_and_teacher_both_exclude_costs_nothing(name):
    log_p = torch.tensor([0.5, 0.5, 0.0]).log().expand(2, 3, 3)
    log_ps = log_p.clone().requires_grad_()
    loss = ensemble_loss(log_ps, log_p, name)
    loss.backward()
    torch.testing.assert_close(loss.detach(), torch.tensor(0.5).log().neg())
    assert log_ps.grad.isfinite().all()


@pytest.mark.parametrize("name", oracle.NAMES)
def test_mixed_precision_pairs_are_promoted_and_gamma_gets_no_gradient(name):
    log_ps, log_pt = log_probs(11, (2, 3, 4))
    gamma = torch.tensor(0.5, requires_grad=True)
    loss = ensemble_loss(log_ps.requires_grad_(), log_pt.float(), name, gamma)
    loss.backward()
    assert loss.dtype == torch.float64
    assert gamma.grad is None


def test_a_score_that_is_no_number_shows_in_the_loss():
    log_ps, log_pt = log_probs(14, (2, 3, 4))
    nan = Weighting(lambda s, t: t.new_full((1, 3, 1, 1), float("nan")))
    assert ensemble_loss(log_ps, log_pt, nan).isnan()


def views(seed, v=5, u=2, m=3, n=4, c=6, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(v, m, n, c, generator=generator, dtype=dtype)
    t = (2 * torch.randn(u, m, n, c, generator=generator, dtype=dtype)).softmax(-1)
    return z, t


def plain_multiview_loss(z, t, weighting, temperature=None, same_views=True):
    pairs = [(u, v) for u in range(len(t)) for v in range(len(z)) if not same_views or u != v]
    losses = [
        ensemble_loss(
            z[v].log_softmax(-1).transpose(0, 1), t[u].log().transpose(0, 1), weighting, temperature
        )
        for u, v in pairs
    ]
    return sum(losses) / len(pairs)


WEIGHTINGS = [
    *SCHEMES,
    *(Weighting(n, aligned=True) for n in SCHEMES),
    Weighting("kl", hard=True),
    OWN,
]


@pytest.mark.parametrize("weighting", WEIGHTINGS, ids=lambda w: "own" if w is OWN else str(w))
@pytest.mark.parametrize("v", [2, 3, 6])
def test_the_folded_multiview_loss_equals_the_loop_over_pairs(weighting, v):
    z, t = views(v, v=v)
    for temperature in (None, 0.7):
        fast = value_and_gradient(lambda z, g=temperature: multiview_loss(z, t, weighting, g), z)
        plain = value_and_gradient(
            lambda z, g=temperature: plain_multiview_loss(z, t, weighting, g), z
        )
        torch.testing.assert_close(fast, plain)


@pytest.mark.parametrize("weighting", ["unif", "ent", "prob", "kl"])
def test_a_teacher_view_that_is_no_students_teaches_all_of_them(weighting):
    z, t = views(7, v=4, u=1)
    torch.testing.assert_close(
        multiview_loss(z, t, weighting, same_views=False),
        plain_multiview_loss(z, t, weighting, same_views=False),
    )


@pytest.mark.parametrize("name", SCHEMES)
def test_nothing_as_large_as_all_pairs_times_all_codes_is_ever_made(name):
    from torch.utils._python_dispatch import TorchDispatchMode

    largest = 0

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            tensors = out if isinstance(out, (tuple, list)) else (out,)
            largest = max([largest, *(x.numel() for x in tensors if torch.is_tensor(x))])
            return out

    z, t = views(8, v=4, m=8, n=4, c=16, dtype=torch.float32)
    z.requires_grad_()
    with Watch():
        multiview_loss(z, t, name).backward()
    assert largest <= z.numel()  # V x M x N x C, and V < M


@pytest.mark.parametrize("name", SCHEMES)
def test_mixed_precision_views_are_promoted_and_the_teacher_gets_no_gradient(name):
    z, t = views(13)
    expected = multiview_loss(z, t, name)
    t32 = t.float().requires_grad_()
    mixed = multiview_loss(z.requires_grad_(), t32, name)
    mixed.backward()
    assert mixed.dtype == torch.float64
    assert t32.grad is None
    torch.testing.assert_close(mixed, expected, rtol=1e-5, atol=1e-5)
    assert multiview_loss(z.detach().float(), t, name).dtype == torch.float64


def test_the_multiview_loss_of_bf16_logits_is_fp32_and_close():
    z, t = views(9, dtype=torch.float32)
    low = multiview_loss(z.bfloat16(), t.bfloat16(), "ent")
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, multiview_loss(z, t, "ent"), rtol=0.02, atol=0.02)


def test_autocast_does_not_lower_the_losses_precision():
    z, t = views(10, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for name in SCHEMES:
            torch.testing.assert_close(
                multiview_loss(z, t, name),
                plain_multiview_loss(z.double(), t.double(), name).float(),
            )


@pytest.mark.parametrize(
    ("z", "t", "message"),
    [
        (torch.zeros(2, 1, 4), torch.zeros(2, 1, 4), r"\(V, M, N, C\)"),
        (torch.zeros(3, 1, 4, 8), torch.zeros(2, 1, 4, 9), "agree in heads, images and codes"),
        (torch.zeros(1, 1, 4, 8), torch.full((1, 1, 4, 8), 1 / 8), "cannot learn from itself"),
        (torch.zeros(2, 1, 4, 8), torch.full((3, 1, 4, 8), 1 / 8), "more views than the student"),
        (
            torch.zeros(3, 1, 4, 8),
            torch.full((2, 1, 4, 8), -2.0),
            r"probabilities \(not logarithms",
        ),
        (torch.zeros(3, 1, 4, 8), torch.zeros(2, 1, 4, 8), "found a sum of 0.0"),
        (torch.zeros(2, 1, 0, 8), torch.zeros(2, 1, 0, 8), "must not be empty"),
    ],
)
def test_wrong_views_are_named(z, t, message):
    with pytest.raises(ValueError, match=message):
        multiview_loss(z, t)


@pytest.mark.parametrize("name", oracle.NAMES)
@pytest.mark.parametrize("same_views", [True, False])
def test_a_heads_share_is_all_that_it_is_taught(name, same_views):
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(3, 4, 2, 5, generator=generator, dtype=torch.float64)
    probs = torch.randn(2, 4, 2, 5, generator=generator, dtype=torch.float64).softmax(-1)
    taught = torch.zeros(4, dtype=torch.float64)
    for u, v in [(u, v) for u in range(2) for v in range(3) if not same_views or u != v]:
        log_ps, log_pt = (x.transpose(0, 1) for x in (logits[v].log_softmax(-1), probs[u].log()))
        w = oracle.weights(name, log_ps, log_pt, 0.6)
        taught += torch.einsum("bijy,biy->j", w, log_pt.exp())
    found = head_shares(logits, probs, name, 0.6, same_views)
    torch.testing.assert_close(found, taught / taught.sum())
    torch.testing.assert_close(head_shares(logits, probs, OWN, 0.6, same_views).sum(), found.sum())
