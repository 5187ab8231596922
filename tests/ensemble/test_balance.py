"""When ME-MAX holds a sharp teacher: the law against the gradients of the real losses."""

import math

import pytest
import torch

from wessl import me_max, multiview_loss, sharpen
from wessl.ensemble.balance import excess_that_wins

CODES, STUDENT = 50_000, 0.1


def pull_on_a_code(excess, weight, sharpness):
    """Downhill, on the logit of a code that has ``excess`` times its share in every picture."""
    logits = torch.zeros(1, 1, 2, CODES, dtype=torch.float64)
    logits[..., 0] = math.log(excess)
    logits.requires_grad_()
    targets = sharpen(logits.detach()[0] * STUDENT, STUDENT / sharpness)
    cross_entropy = multiview_loss(logits, targets[None], "unif", same_views=False)
    (cross_entropy + weight * me_max(logits[0].softmax(-1))).backward()
    return -logits.grad[..., 0].sum().item() * CODES


@pytest.mark.parametrize("weight", [3.5, 4.0, 6.0, 10.0])
@pytest.mark.parametrize("sharpness", [2.0, 2.9, 4.0])
def test_below_it_a_code_is_pulled_back_and_beyond_it_up(weight, sharpness):
    edge = excess_that_wins(weight, sharpness)
    if edge**sharpness > 0.02 * CODES:
        pytest.skip("so large a share is no longer few of many")
    middle = 1 + (edge - 1) / 2
    assert pull_on_a_code(middle, weight, sharpness) < 0
    assert pull_on_a_code(1 + 1.2 * (edge - 1), weight, sharpness) > 0


def test_too_light_a_weight_holds_no_excess_at_all():
    assert excess_that_wins(2.9, sharpness=4.0) == 1
    assert pull_on_a_code(1.01, 2.9, 4.0) > 0
    assert pull_on_a_code(1.01, 3.2, 4.0) < 0


def test_a_teacher_no_sharper_than_the_student_needs_none():
    assert excess_that_wins(0.5, sharpness=1.0) == math.inf
    assert excess_that_wins(0.5, sharpness=0.5) == math.inf


def test_a_heavier_weight_and_a_milder_teacher_hold_more():
    by_weight = [excess_that_wins(weight, 4.0) for weight in (3.1, 4, 5, 8, 20)]
    by_teacher = [excess_that_wins(4.0, sharpness) for sharpness in (4.5, 4, 3, 2, 1.1)]
    assert by_weight == sorted(by_weight)
    assert by_teacher == sorted(by_teacher)
    assert all(math.isfinite(edge) and edge > 1 for edge in by_weight + by_teacher[:-1])
