import math

import loss_oracle as oracle
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from wessl import Weighting, ensemble_weights
from wessl.ensemble.weighting import SCHEMES, fold_teachers, teacher_certainty

shapes = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(2, 5))
gammas = st.floats(0.02, 5.0)
seeds = st.integers(0, 2**31)


def log_probs(seed, shape, scale=2.0):
    generator = torch.Generator().manual_seed(seed)
    z = scale * torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    return z.log_softmax(-1)


def test_the_family_has_the_papers_ten_members():
    assert list(SCHEMES) == oracle.NAMES


@pytest.mark.parametrize("name", oracle.NAMES)
@given(shape=shapes, gamma=gammas, seed=seeds)
@settings(max_examples=12, deadline=None)
def test_weights_equal_the_loop_over_pairs(name, shape, gamma, seed):
    log_ps, log_pt = log_probs(seed, shape)
    b, m, c = shape
    ours = ensemble_weights(log_ps, log_pt, name, gamma).expand(b, m, m, c)
    torch.testing.assert_close(ours, oracle.weights(name, log_ps, log_pt, gamma))


@pytest.mark.parametrize("name", oracle.NAMES)
def test_weights_equal_the_loop_at_the_default_temperature(name):
    log_ps, log_pt = log_probs(3, (3, 4, 6))
    ours = ensemble_weights(log_ps, log_pt, name).expand(3, 4, 4, 6)
    torch.testing.assert_close(ours, oracle.weights(name, log_ps, log_pt))


@pytest.mark.parametrize("name", oracle.NAMES)
@pytest.mark.parametrize("hard", [False, True])
def test_aligned_variants_of_every_scheme_can_be_asked_for(name, hard):
    log_ps, log_pt = log_probs(4, (3, 4, 6))
    ours = ensemble_weights(log_ps, log_pt, Weighting(name, aligned=True, hard=hard), 0.7)
    expected = oracle.weights(
        name, log_ps, log_pt, 0.7, aligned=True, hard=hard or name in oracle.HARD
    )
    torch.testing.assert_close(ours.expand(3, 4, 4, 6), expected)


@pytest.mark.parametrize("name", oracle.NAMES)
@given(shape=shapes, gamma=gammas, seed=seeds)
@settings(max_examples=15, deadline=None)
def test_weights_sum_to_one_over_pairs_for_every_image_and_code(name, shape, gamma, seed):
    log_ps, log_pt = log_probs(seed, shape, scale=30.0)
    b, m, c = shape
    total = ensemble_weights(log_ps, log_pt, name, gamma).expand(b, m, m, c).sum((1, 2))
    torch.testing.assert_close(total, torch.ones(b, c, dtype=torch.float64))


def test_entropy_weights_prefer_the_confident_head():
    sure, unsure = torch.tensor([5.0, 0, 0]), torch.tensor([1.0, 0.5, 0])
    log_pt = torch.stack([unsure, sure])[None].log_softmax(-1)
    w = ensemble_weights(log_pt.roll(1, 1), log_pt, "ent", 0.5)
    assert w[0, 1, 1, 0] > 0.7
    assert w[0, 0, 1, 0] == w[0, 1, 0, 0] == 0


def test_entropy_weights_tend_to_uniform_and_to_the_surest_head():
    log_ps, log_pt = log_probs(5, (4, 5, 7))
    diagonal = ensemble_weights(log_ps, log_pt, "ent", 1e6).diagonal(dim1=1, dim2=2)
    torch.testing.assert_close(diagonal, torch.full_like(diagonal, 1 / 5), rtol=1e-5, atol=1e-5)
    cold = ensemble_weights(log_ps, log_pt, "ent", 1e-6)
    torch.testing.assert_close(cold, ensemble_weights(log_ps, log_pt, Weighting("ent", hard=True)))
    surest = (log_pt.exp() * log_pt).sum(-1).argmax(1)
    assert (cold[..., 0].diagonal(dim1=1, dim2=2).argmax(1) == surest).all()


def test_hard_weightings_share_ties_equally_and_ignore_the_temperature():
    log_p = torch.log_softmax(torch.ones(1, 3, 4), -1)
    for name in ("prob-max", "prob-max-te"):
        w = ensemble_weights(log_p, log_p, name, temperature=-1.0).expand(1, 3, 3, 4)
        torch.testing.assert_close(w, torch.full((1, 3, 3, 4), 1 / 9))


def test_the_surest_of_two_tied_teachers_share_its_weight():
    p = torch.tensor([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1], [0.4, 0.3, 0.3]]).log()[None]
    w = ensemble_weights(p, p, Weighting("ent", hard=True))
    torch.testing.assert_close(w[0, :, :, 0], torch.diag(torch.tensor([0.5, 0.5, 0.0])))


def test_a_code_no_teacher_believes_in_gets_shared_weights_not_nan():
    pt = torch.tensor([[[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]])
    for name in oracle.NAMES:
        w = ensemble_weights(torch.zeros(1, 2, 3).log_softmax(-1), pt.log(), name)
        assert w.isfinite().all(), name
    w = ensemble_weights(torch.zeros(1, 2, 3).log_softmax(-1), pt.log(), "prob-te")
    torch.testing.assert_close(w.expand(1, 2, 2, 3)[..., 2], torch.full((1, 2, 2), 0.25))


def test_your_own_score_may_have_any_four_axes_that_broadcast():
    log_ps, log_pt = log_probs(6, (3, 4, 5))
    generator = torch.Generator().manual_seed(0)
    shapes = [(1, 1, 1, 1), (1, 1, 1, 5), (1, 4, 1, 1), (3, 4, 4, 1), (3, 4, 4, 5), (1, 1, 4, 5)]
    for shape in shapes:
        f = torch.randn(shape, generator=generator, dtype=torch.float64)
        full = f.expand(3, 4, 4, 5)
        expected = (full / 0.3).flatten(1, 2).softmax(1).unflatten(1, (4, 4))
        w = ensemble_weights(log_ps, log_pt, Weighting(lambda s, t, f=f: f), 0.3)
        torch.testing.assert_close(w.expand(3, 4, 4, 5), expected)


def test_a_score_of_three_axes_is_refused_also_where_there_are_as_many_pictures_as_heads():
    log_ps, log_pt = log_probs(6, (4, 4, 5))
    with pytest.raises(ValueError, match=r"four axes.*got \(4, 4, 1\)"):
        ensemble_weights(log_ps, log_pt, Weighting(lambda s, t: t.amax(-1, keepdim=True)))


def test_a_schemes_score_given_as_a_function_is_not_aligned():
    log_ps, log_pt = log_probs(7, (2, 3, 4))
    ours = ensemble_weights(log_ps, log_pt, Weighting(teacher_certainty), 0.4)
    expected = oracle.weights("ent", log_ps, log_pt, 0.4, aligned=False)
    torch.testing.assert_close(ours.expand(2, 3, 3, 4), expected)


def test_folding_the_teachers_equals_the_sum_over_teachers_for_every_shape_of_weight():
    pt = log_probs(8, (3, 4, 5))[1].exp()
    for shape in [(3, 4, 4, 5), (1, 4, 1, 5), (3, 1, 4, 5), (3, 4, 4, 1), (1, 1, 1, 1)]:
        w = torch.rand(shape, dtype=torch.float64)
        expected = torch.einsum("bijy,biy->bjy", w.expand(3, 4, 4, 5), pt)
        torch.testing.assert_close(fold_teachers(w, pt, False).expand(3, 4, 5), expected)


def test_no_gradient_flows_through_weights():
    log_ps, log_pt = (x.requires_grad_() for x in log_probs(9, (2, 3, 4)).unbind())
    for name in oracle.NAMES:
        assert not ensemble_weights(log_ps, log_pt, name).requires_grad


def test_low_precision_input_gives_at_least_fp32_weights():
    log_ps, log_pt = log_probs(10, (2, 3, 4)).bfloat16()
    assert ensemble_weights(log_ps, log_pt, "ent").dtype == torch.float32


@given(shape=shapes, seed=seeds)
@settings(max_examples=50, deadline=None)
def test_the_variance_score_bounds_the_entropy_score(shape, seed):
    """H <= 1/2 log(Var + 1/12) + 1/2 log(2 pi e), the appendix's bound."""
    b, m, c = shape
    p = log_probs(seed, (b, m, 12 * c))[1].exp()
    constant = 0.5 * math.log(2 * math.pi * math.e)
    for n in range(b):
        for i in range(m):
            bound = -oracle.score("var", None, p[n], i, 0, 0) + constant
            assert oracle.entropy(p[n, i]) <= bound + 1e-12
    ours = ensemble_weights(p.log(), p.log(), "var", 1.0)[:, :, 0, 0]
    scores = [[oracle.score("var", None, p[n], i, 0, 0) for i in range(m)] for n in range(b)]
    expected = torch.tensor(scores, dtype=torch.float64).softmax(1) / m
    torch.testing.assert_close(ours, expected)


EVEN = torch.zeros(2, 3, 4).log_softmax(-1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(weighting="entropy"), "unknown weighting 'entropy'; choose one of unif, "),
        (dict(weighting=Weighting("nope")), "unknown weighting 'nope'"),
        (dict(weighting=3), r"a name or a Weighting\(your_score, ...\), not 3"),
        (dict(weighting=Weighting(3)), "a name or callable, not 3"),
        (dict(temperature=0.0), "positive finite number, got 0.0"),
        (dict(temperature=float("nan")), "got nan"),
        (dict(temperature=-1), "got -1"),
        (dict(temperature=torch.tensor(-2.0)), "got -2"),
        (dict(temperature=float("inf")), "got inf"),
        (dict(temperature="warm"), "got 'warm'"),
        (dict(temperature=True), "got True"),
        (dict(temperature=torch.ones(2)), "got tensor"),
        (dict(log_ps=torch.ones(2, 3, 4, dtype=torch.int64)), "floating-point"),
        (dict(log_pt=torch.zeros(2, 3, 5)), r"got \(2, 3, 4\) and \(2, 3, 5\)"),
        (dict(log_ps=torch.zeros(3, 4), log_pt=torch.zeros(3, 4)), r"\(b, m, c\)"),
        (
            dict(weighting=Weighting(lambda s, t: s)),
            r"four axes, each 1 or as in \(b, m, m, c\) = \(2, 3, 3, 4\)",
        ),
        (dict(weighting=Weighting(lambda s, t: 1.0)), "got float"),
        (dict(log_ps=torch.zeros(2, 3, 4)), "log_ps must be log-probabilities.* sum of 4.0"),
        (dict(log_pt=EVEN.exp()), "log_pt must be log-probabilities"),
    ],
)
def test_wrong_input_is_named(arguments, message):
    given = dict(log_ps=EVEN, log_pt=EVEN) | arguments
    with pytest.raises(ValueError, match=message):
        ensemble_weights(**given)
