"""Means and paired intervals, against numpy and scipy."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from wessl.study.intervals import paired, summary

NUMBERS = st.lists(st.tuples(st.floats(1, 100), st.floats(1, 100)), min_size=2, max_size=8)


def by_seed(values):
    return dict(enumerate(values))


def test_seeds_that_agree_to_the_last_digit_make_no_interval():
    found = paired({0: 98.2, 1: 97.2}, {0: 98.0, 1: 97.0})
    assert found["mean"] == pytest.approx(0.2)
    assert (found["low"], found["high"]) == (None, None)


@given(NUMBERS)
def test_the_paired_interval_is_scipys(pairs):
    ours, base = map(np.array, zip(*pairs, strict=True))
    assume(np.std(ours - base) > 1e-6)
    found = paired(by_seed(ours), by_seed(base))
    low, high = stats.ttest_rel(ours, base).confidence_interval(0.95)
    assert found["mean"] == pytest.approx(np.mean(ours - base), abs=1e-9)
    assert (found["low"], found["high"]) == pytest.approx((low, high), rel=1e-6, abs=1e-6)
    assert found["n"] == len(pairs)


@given(NUMBERS)
def test_mean_and_deviation_are_numpys(pairs):
    values = [a for a, _ in pairs]
    found = summary(by_seed(values))
    assert found["mean"] == pytest.approx(np.mean(values))
    assert found["sd"] == pytest.approx(np.std(values, ddof=1), abs=1e-9)
    assert list(found["seeds"].values()) == values


def test_a_relative_difference_is_in_per_cent_of_the_same_seeds_base():
    found = paired({0: 11.0, 1: 24.0}, {0: 10.0, 1: 20.0}, relative=True)
    assert found["mean"] == pytest.approx(15.0)


def test_one_seed_has_a_difference_but_no_interval_and_no_deviation():
    assert paired({3: 2.0}, {3: 1.5}) == dict(mean=0.5, low=None, high=None, n=1)
    assert summary({3: 2.0})["sd"] is None


def test_only_seeds_that_both_have_are_compared():
    assert paired({0: 5.0, 1: 9.0}, {1: 8.0, 2: 0.0})["mean"] == 1.0
    assert paired({0: 5.0}, {1: 8.0}) is None
