"""Diversity from assignments: against plain loops, and where the answer is known."""

import json
import math
import re

import diversity_oracle as oracle
import numpy as np
import pytest
import torch

from wessl.analyse.assignments import Assignments
from wessl.analyse.measure import measure
from wessl.analyse.record import record
from wessl.errors import UserError


def streamed(p, batch_size=32):
    return measure(torch.from_numpy(p).float().split(batch_size, 1))


def permuted_copies(heads=4, pictures=400, codes=30, seed=0):
    rng = np.random.default_rng(seed)
    one = oracle.assignments(1, pictures, codes, seed=seed)[0]
    return np.stack([one, *(one[:, rng.permutation(codes)] for _ in range(heads - 1))])


def test_every_pair_equals_the_plain_loop():
    p = oracle.assignments()
    found = streamed(p)
    assert [a.heads for a in found.alignments] == [(0, 1), (0, 2), (1, 2)]
    for a in found.alignments:
        before, after, score_before, score = oracle.pair(p, *a.heads)
        np.testing.assert_allclose(a.before_c, before, atol=1e-5)
        np.testing.assert_allclose(a.after_c, after, atol=1e-5)
        assert a.score_before == pytest.approx(score_before, abs=1e-5)
        assert a.score == pytest.approx(score, abs=1e-5)
        assert float(found.scores()[a.heads]) == a.score
    assert found.score == pytest.approx(
        np.mean([oracle.pair(p, *a.heads)[3] for a in found.alignments]), abs=1e-5
    )
    curves = [oracle.pair(p, *a.heads)[1] for a in found.alignments]
    np.testing.assert_allclose(found.curve(), np.mean(curves, 0), atol=1e-5)


def test_each_head_and_each_picture_equal_the_plain_loop():
    p = oracle.assignments(heads=4, pictures=50)
    found = streamed(p)
    entropies = np.array([[oracle.entropy(row) for row in head] for head in p])
    np.testing.assert_allclose(found.entropy_mn, entropies, atol=1e-5)
    surest = np.bincount(entropies.argmin(0), minlength=4) / 50
    np.testing.assert_allclose(found.most_confident_m, surest)
    np.testing.assert_allclose(
        found.usage_entropy_m, [oracle.entropy(head.mean(0)) for head in p], atol=1e-5
    )
    used = [len({int(row.argmax()) for row in head}) for head in p]
    assert found.codes_used_m.tolist() == used
    agreements = [oracle.agreement(p, picture) for picture in range(50)]
    np.testing.assert_allclose(found.agreement_n, agreements, atol=1e-5)
    assert found.disagreed(3).tolist() == np.argsort(agreements)[:3].tolist()
    for head in range(4):
        assert found.sure(head, 5).tolist() == np.argsort(entropies[head])[:5].tolist()


def test_permuted_copies_of_one_head_are_alike_everywhere_once_aligned():
    found = streamed(permuted_copies())
    for a in found.alignments:
        torch.testing.assert_close(a.after_c, torch.ones(30))
        assert a.score_before > 0.5
    assert found.score == pytest.approx(0, abs=1e-5)
    torch.testing.assert_close(found.agreement_n, torch.ones(400))
    torch.testing.assert_close(found.information.adjusted_mm, torch.ones(4, 4, dtype=torch.float64))
    assert "nearly copies" in found.summary
    assert "gather different pictures" in found.summary


def test_alignment_finds_the_very_permutation():
    p = permuted_copies(heads=2)
    a = streamed(p).alignments[0]
    for row, column in zip(a.rows_c.tolist(), a.columns_c.tolist(), strict=True):
        np.testing.assert_array_equal(p[0, :, row], p[1, :, column])


def test_copies_that_number_their_codes_alike_are_aligned_already():
    one = oracle.assignments(1, 200, 10)
    found = streamed(np.repeat(one, 3, axis=0))
    assert found.score_before == pytest.approx(0, abs=1e-5)
    assert "number their codes alike" in found.summary
    torch.testing.assert_close(found.most_confident_m, torch.full((3,), 1 / 3, dtype=torch.float64))


def test_independent_heads_decay_fast():
    found = streamed(oracle.assignments(2, 4000, 40, sharpness=8))
    assert found.curve()[0] < 0.25
    assert found.score > 0.85
    assert "different ways" in found.summary
    assert abs(float(found.information.adjusted_mm[0, 1])) < 0.05


@pytest.mark.parametrize("sharpness", [0.3, 0.9])
def test_heads_that_are_unsure_of_everything_are_not_called_copies(sharpness):
    """Unrelated heads, alike to the measure all the same, because their columns are flat."""
    found = streamed(oracle.assignments(3, 600, 96, sharpness))
    assert found.score < 0.5
    assert "hardly sure of anything" in found.summary
    assert f"{found.entropy_mn.mean():.2f} of at most 4.56 nats" in found.summary
    assert re.search(r"have in common is -?0\.0\d, from 0 for chance", found.summary)
    for wrong in ("The heads are nearly copies", "share more than", "number their codes alike"):
        assert wrong not in found.summary


def test_a_little_surer_the_verdict_can_be_trusted():
    assert "different ways" in streamed(oracle.assignments(3, 600, 96, 1.1)).summary
    one = oracle.assignments(1, 600, 96, 1.1)
    assert "nearly copies" in streamed(np.repeat(one, 3, axis=0)).summary


def test_diversity_grows_as_copies_are_mixed_with_noise():
    copies, noise = permuted_copies(2), oracle.assignments(2, 400, 30, seed=9)
    scores = [streamed((1 - x) * copies + x * noise).score for x in (0, 0.25, 0.5, 0.75, 1)]
    assert scores == sorted(scores)


def test_the_size_of_the_batches_does_not_matter():
    p = oracle.assignments(3, 2500, 7)
    whole = streamed(p, 2500)
    for size in (1, 99, 1024):
        parts = streamed(p, size)
        for a, b in zip(whole.alignments, parts.alignments, strict=True):
            torch.testing.assert_close(a.after_c, b.after_c)
            torch.testing.assert_close(a.before_c, b.before_c)
        torch.testing.assert_close(whole.entropy_mn, parts.entropy_mn)
        torch.testing.assert_close(whole.agreement_n, parts.agreement_n)
        torch.testing.assert_close(whole.usage_mc, parts.usage_mc)
        assert torch.equal(whole.code_mn, parts.code_mn)


def test_rare_codes_are_compared_and_silent_ones_are_counted():
    """Squares of probabilities of 1e-25 are beyond fp32; a code without any has no direction."""
    p = oracle.assignments(2, 60, 4)
    p[..., 2] *= 1e-25
    p[..., 3] = 0
    found = streamed(p)
    s = oracle.similarity(p[..., :3], 0, 1)
    grams = Assignments(2, 4)
    grams.add(torch.from_numpy(p))
    np.testing.assert_allclose(grams.cosines(0)[:3, :3], s, atol=1e-5)
    assert grams.cosines(0)[3].abs().max() == 0
    assert found.silent_m.tolist() == [1, 1]


def test_one_head_has_nothing_to_compare_and_says_so():
    found = streamed(oracle.assignments(1))
    assert math.isnan(found.score)
    assert "nothing to compare" in found.summary
    result = record(found)
    assert result["score"] is result["curves"] is result["agreement"] is None
    assert result["shown"] == result["disagreed"] == []
    assert result["per_head"][0]["most_confident"] == 1
    json.dumps(result, allow_nan=False)


def test_the_record_is_small_whatever_the_number_of_codes():
    result = record(streamed(oracle.assignments(5, 600, 300)))
    assert len(json.dumps(result, allow_nan=False)) < 300_000
    assert len(result["curves"]["after"]) == len(result["curves"]["share"]) == 256
    assert result["curves"]["share"][0] == 0
    assert result["curves"]["share"][-1] == 1
    roles = [pair["role"] for pair in result["shown"]]
    assert roles == ["least diverse", "in the middle", "most diverse"]
    scores = [pair["score"] for pair in result["shown"]]
    assert scores == sorted(scores)
    assert np.shape(result["shown"][0]["matrix_after"]) == (64, 64)
    assert sum(result["agreement"]["bins"]) == 600
    assert all(len(head["sure"]) == 8 for head in result["per_head"])


def test_wrong_shapes_too_much_memory_and_no_pictures_are_refused():
    with pytest.raises(ValueError, match=r"expected probabilities \(2, n, 4\), got \(3, 5, 4\)"):
        Assignments(2, 4).add(torch.rand(3, 5, 4))
    with pytest.raises(ValueError, match="no pictures"):
        measure([])
    with pytest.raises(UserError, match=r"16 heads of 1000000 codes needs \d+ GB"):
        Assignments(16, 1_000_000)
