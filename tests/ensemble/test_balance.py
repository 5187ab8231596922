"""When ME-MAX holds a sharp teacher: the law against the gradients of the real losses."""

import math

import pytest
import torch

from wessl import head_shares, me_max, multiview_loss, sharpen
from wessl.ensemble.balance import excess_that_wins

STUDENT = 0.1


def pull_on_a_code(excess, weight, sharpness, codes):
    """Downhill, on the logit of a code that has ``excess`` times its share in every picture."""
    share = excess / codes
    logits = torch.zeros(1, 1, 2, codes, dtype=torch.float64)
    logits[..., 0] = math.log(share * (codes - 1) / (1 - share))
    logits.requires_grad_()
    targets = sharpen(logits.detach()[0] * STUDENT, STUDENT / sharpness)
    cross_entropy = multiview_loss(logits, targets[None], "unif", same_views=False)
    (cross_entropy + weight * me_max(logits[0].softmax(-1))).backward()
    return -logits.grad[..., 0].sum().item()


@pytest.mark.parametrize("weight", [3.5, 4.0, 6.0, 10.0])
@pytest.mark.parametrize("sharpness", [2.0, 2.9, 4.0])
@pytest.mark.parametrize("codes", [32, 256, 4096])
def test_below_it_a_code_is_pulled_back_and_beyond_it_up(weight, sharpness, codes):
    edge = excess_that_wins(weight, sharpness, codes)
    assert edge > 1
    if edge == math.inf:
        shares = [1 + (0.99 * codes - 1) * i / 300 for i in range(1, 300)]
        assert max(pull_on_a_code(excess, weight, sharpness, codes) for excess in shares) < 0
        return
    assert pull_on_a_code(1 + 0.98 * (edge - 1), weight, sharpness, codes) < 0
    assert pull_on_a_code(1 + 1.02 * (edge - 1), weight, sharpness, codes) > 0


def test_a_heavy_weight_holds_a_mild_teacher_of_few_codes_for_good():
    assert excess_that_wins(4.0, sharpness=2.0, codes=256) == math.inf
    assert excess_that_wins(4.0, sharpness=4.0, codes=256) < 1.3


def test_too_light_a_weight_holds_no_excess_at_all():
    assert excess_that_wins(3.0, sharpness=4.0, codes=256) == 1
    assert pull_on_a_code(1.01, 2.9, 4.0, 256) > 0
    assert pull_on_a_code(1.01, 3.2, 4.0, 256) < 0


@pytest.mark.parametrize("sharpness", [1.0, 0.5])
def test_a_teacher_no_sharper_than_the_student_needs_none(sharpness):
    assert excess_that_wins(0.5, sharpness, codes=256) == math.inf


def test_a_heavier_weight_and_a_milder_teacher_hold_more():
    by_weight = [excess_that_wins(weight, 4.0, 4096) for weight in (3.1, 4, 5, 8, 20)]
    by_teacher = [excess_that_wins(4.0, sharpness, 4096) for sharpness in (4.5, 4, 3, 2, 1.1)]
    assert by_weight == sorted(by_weight)
    assert by_teacher == sorted(by_teacher)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_head_that_learns_more_than_others_is_held_if_its_me_max_weighs_as_much(weighted):
    """In the first of four heads a code has a tenth too much, so it is the surest."""
    codes, share = 256, 1.1 / 256
    logits = torch.zeros(4, 2, codes, dtype=torch.float64)
    logits[0, :, 0] = math.log(share * (codes - 1) / (1 - share))
    logits.requires_grad_()
    targets = sharpen(logits.detach() * STUDENT, STUDENT / 4)
    lesson = logits[None], targets[None], "ent", 1e-4, False
    shares = head_shares(*lesson)
    assert shares[0] > 0.9
    regulariser = me_max(logits.softmax(-1), weights=shares if weighted else None)
    (multiview_loss(*lesson) + 4 * regulariser).backward()
    pull = -logits.grad[0, :, 0].sum().item()
    assert (pull < 0) == weighted
