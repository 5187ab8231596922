"""Mutual information between heads, against scikit-learn's."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_mutual_info_score, mutual_info_score

from wessl.analyse.information import mutual_information


def related_codes(pictures=3000, codes=12, seed=0):
    """Three heads: a random one, one that follows it for half of the pictures, an unrelated one."""
    rng = np.random.default_rng(seed)
    first, other, third = rng.integers(0, codes, (3, pictures))
    second = np.where(rng.random(pictures) < 0.5, (first + 1) % codes, other)
    return np.stack([first, second, third])


def test_it_is_scikit_learns_mutual_information_for_every_pair():
    code_mn = related_codes()
    found = mutual_information(torch.from_numpy(code_mn), 12)
    for i in range(3):
        for j in range(3):
            expected = mutual_info_score(code_mn[i], code_mn[j])
            assert float(found.mutual_mm[i, j]) == pytest.approx(expected, abs=1e-9)
            adjusted = adjusted_mutual_info_score(code_mn[i], code_mn[j])
            assert float(found.adjusted_mm[i, j]) == pytest.approx(adjusted, abs=0.01)


def test_unrelated_heads_with_many_codes_measure_chance_and_not_zero():
    code_mn = np.random.default_rng(1).integers(0, 200, (2, 1000))
    found = mutual_information(torch.from_numpy(code_mn), 200)
    assert found.mutual_mm[0, 1] > 2  # nats, for nothing: hardly two pictures share both codes
    assert abs(float(found.adjusted_mm[0, 1])) < 0.02


def test_renumbered_copies_share_everything():
    first = torch.from_numpy(related_codes()[0])
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    found = mutual_information(torch.stack([first, order[first]]), 12)
    assert float(found.adjusted_mm[0, 1]) == pytest.approx(1)
    assert float(found.mutual_mm[0, 1]) == pytest.approx(math.log(12), abs=0.01)


def test_heads_that_give_every_picture_one_code_agree_and_say_nothing():
    found = mutual_information(torch.zeros(2, 50, dtype=torch.long), 4)
    assert found.mutual_mm.abs().max() < 1e-12
    assert (found.adjusted_mm == 1).all()
