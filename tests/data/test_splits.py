import pytest
import torch

from wessl.data.labelled.splits import few_shot_draws, fraction_draws, held_out
from wessl.errors import UserError

LABELS = torch.randint(0, 7, (400,), generator=torch.Generator().manual_seed(0)) * 3


@pytest.mark.parametrize("shots", [1, 2, 5])
def test_every_class_gives_exactly_its_shots(shots):
    for chosen in few_shot_draws(LABELS, shots, draws=3):
        assert chosen.dtype == torch.int64
        assert len(set(chosen.tolist())) == 7 * shots
        assert LABELS[chosen].bincount()[::3].tolist() == [shots] * 7


def test_smaller_draws_lie_inside_larger_ones_of_the_same_seed():
    by_shots = [few_shot_draws(LABELS, shots, draws=4, seed=3) for shots in (1, 2, 5)]
    for one, two, five in zip(*by_shots, strict=True):
        assert set(one.tolist()) < set(two.tolist()) < set(five.tolist())


def test_draws_and_seeds_differ_and_repeat():
    first, second = few_shot_draws(LABELS, 5, draws=2)
    assert not torch.equal(first, second)
    assert torch.equal(first, few_shot_draws(LABELS, 5, draws=7)[0])
    assert not torch.equal(first, few_shot_draws(LABELS, 5, draws=1, seed=1)[0])


def test_every_picture_of_a_class_is_equally_likely():
    labels = torch.tensor([0, 1, 0, 1, 0, 0])
    counts = torch.cat(few_shot_draws(labels, 1, draws=2000)).bincount(minlength=6)
    assert (counts / 2000 - torch.tensor([1, 2, 1, 2, 1, 1]) / 4).abs().max() < 0.04


def test_a_class_with_too_few_pictures_is_named():
    labels = torch.tensor([0, 0, 0, 1, 2])
    with pytest.raises(
        UserError, match=r"class 1 has 1 picture, fewer than 2 shots \(2 classes have"
    ):
        few_shot_draws(labels, 2, draws=1)
    with pytest.raises(UserError, match="class 'cat' has 1"):
        few_shot_draws(labels, 2, draws=1, classes=["ant", "cat", "dog"])


def test_a_fraction_is_taken_of_every_class_but_at_least_one():
    labels = torch.tensor([0] * 1000 + [1] * 130 + [2] * 4)
    small, large = (fraction_draws(labels, share, draws=1)[0] for share in (0.01, 0.1))
    assert labels[small].bincount().tolist() == [10, 1, 1]
    assert labels[large].bincount().tolist() == [100, 13, 1]
    assert set(small.tolist()) < set(large.tolist())


@pytest.mark.parametrize("fraction", [0.0, -1.0, 1.5, float("nan")])
def test_an_impossible_fraction_is_refused(fraction):
    with pytest.raises(UserError, match="fraction"):
        fraction_draws(LABELS, fraction, draws=1)


def test_a_share_of_every_class_is_held_out_and_no_class_is_lost():
    labels = torch.tensor([0] * 50 + [1] * 10 + [2] * 2 + [3])
    labels = labels[torch.randperm(63, generator=torch.Generator().manual_seed(0))]
    kept, held = held_out(labels, 0.2)
    assert sorted(kept.tolist() + held.tolist()) == list(range(63))
    assert labels[kept].bincount().tolist() == [40, 8, 1, 1]
    assert labels[held].bincount(minlength=4).tolist() == [10, 2, 1, 0]
    assert torch.equal(held, held_out(labels, 0.2)[1])
    assert not torch.equal(held, held_out(labels, 0.2, seed=1)[1])


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1, float("nan")])
def test_nothing_or_everything_cannot_be_held_out(share):
    with pytest.raises(UserError, match="0 < share < 1"):
        held_out(LABELS, share)
