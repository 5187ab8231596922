"""Codes of two heads matched: what the matching must do whatever the similarities are."""

from itertools import permutations

import pytest
import torch

from wessl.analyse.align import align, pictures
from wessl.data.pictures import spaced


def random_similarity(codes, seed):
    return torch.rand(codes, codes, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("seed", range(5))
def test_no_other_numbering_has_a_larger_sum(seed):
    similarity = random_similarity(5, seed)
    best = max(
        sum(float(similarity[k, order[k]]) for k in range(5)) for order in permutations(range(5))
    )
    assert float(align(similarity).after_c.sum()) == pytest.approx(best, abs=1e-6)


def test_the_matched_codes_are_in_the_order_of_the_decay_curve():
    similarity = random_similarity(40, 1)
    matched = align(similarity)
    assert matched.rows_c.sort().values.tolist() == list(range(40))
    assert matched.columns_c.sort().values.tolist() == list(range(40))
    torch.testing.assert_close(similarity[matched.rows_c, matched.columns_c], matched.after_c)
    assert (matched.after_c.diff() <= 0).all()
    assert (matched.before_c.diff() <= 0).all()


def test_alignment_never_lowers_the_area_under_the_curve():
    for seed in range(20):
        matched = align(random_similarity(12, seed))
        assert 0 <= matched.score <= matched.score_before <= 1


def test_a_large_matrix_is_shown_by_codes_that_keep_their_similarity():
    similarity = random_similarity(200, 2)
    matched = align(similarity)
    before, after = pictures(similarity, matched)
    assert before.shape == after.shape == (64, 64)
    kept = spaced(200, 64)
    torch.testing.assert_close(before.diagonal(), similarity.diagonal()[kept])
    torch.testing.assert_close(after.diagonal(), matched.after_c[kept])
    whole, aligned = pictures(similarity[:9, :9], align(similarity[:9, :9]))
    torch.testing.assert_close(whole, similarity[:9, :9])
    assert (aligned.diagonal().diff() <= 0).all()
