"""Schedules against numpy's own ramps and the formulas of the paper."""

import math

import numpy as np
import pytest

from wessl.config import LossConfig, OptimConfig
from wessl.ensemble.weighting import SCHEMES, as_temperature
from wessl.pretrain.schedules import Now, schedule

STEPS, PER_EPOCH, CODES = 80, 10, 64


def at(step: int, steps: int = STEPS, codes: int = CODES, **settings) -> Now:
    names = OptimConfig.__dataclass_fields__
    optim = OptimConfig(**{k: v for k, v in settings.items() if k in names})
    loss = LossConfig(**{k: v for k, v in settings.items() if k not in names})
    return schedule(step, steps, PER_EPOCH, optim, loss, codes)


def half_cosine(start: float, end: float, count: int) -> np.ndarray:
    """``count`` values on half a cosine, both ends included."""
    return (start + end) / 2 + (start - end) / 2 * np.cos(np.linspace(0, np.pi, count))


def test_the_learning_rate_climbs_a_line_and_then_falls_on_half_a_cosine():
    rates = [at(s, lr=1e-2, lr_start=1e-4, min_lr=1e-5, warmup_epochs=2).lr for s in range(STEPS)]
    np.testing.assert_allclose(rates[:21], np.linspace(1e-4, 1e-2, 21))
    np.testing.assert_allclose(rates[20:], half_cosine(1e-2, 1e-5, STEPS - 20))
    assert max(rates) == rates[20] == 1e-2
    assert rates[-1] == pytest.approx(1e-5)


def test_without_a_warm_up_the_first_step_has_the_peak_rate():
    assert at(0, lr=1e-2, warmup_epochs=0).lr == 1e-2


def test_a_warm_up_longer_than_the_run_never_leaves_its_line():
    rates = [at(s, lr=1.0, lr_start=0, warmup_epochs=16).lr for s in range(STEPS)]
    np.testing.assert_allclose(rates, np.arange(STEPS) / 160)


def test_a_warm_up_may_end_between_two_steps():
    rates = [at(s, lr=1.0, lr_start=0, min_lr=0, warmup_epochs=0.25).lr for s in range(6)]
    np.testing.assert_allclose(rates[:3], [0, 0.4, 0.8])
    assert all(0.95 < rate <= 1 for rate in rates[3:])


def test_weight_decay_and_momentum_go_from_end_to_end_on_half_a_cosine():
    settings = dict(weight_decay=0.04, weight_decay_end=0.4, momentum=0.9, momentum_end=1.0)
    values = [at(s, **settings) for s in range(STEPS)]
    decays, momenta = [v.weight_decay for v in values], [v.momentum for v in values]
    np.testing.assert_allclose(decays, half_cosine(0.04, 0.4, STEPS))
    np.testing.assert_allclose(momenta, half_cosine(0.9, 1.0, STEPS))
    assert momenta[-1] == 1.0


def test_stretched_schedules_are_those_of_a_longer_run_cut_off():
    settings = dict(lr=1e-2, lr_start=1e-4, min_lr=1e-5, warmup_epochs=2, momentum_shape="linear")
    for step in range(STEPS):
        short, long = at(step, **settings, schedule_stretch=1.25), at(step, 100, **settings)
        assert short == long
    assert short.momentum < 1
    assert short.lr > 1e-4


def test_msns_momentum_goes_on_a_line():
    momenta = [at(s, momentum=0.9, momentum_shape="linear").momentum for s in range(STEPS)]
    np.testing.assert_allclose(momenta, np.linspace(0.9, 1.0, STEPS))


def test_the_teacher_temperature_changes_every_step_until_its_epochs_are_over():
    settings = dict(teacher_temperature_start=0.05, teacher_temperature=0.025)
    values = [
        at(s, teacher_temperature_epochs=3, **settings).teacher_temperature for s in range(STEPS)
    ]
    np.testing.assert_allclose(values[:31], np.linspace(0.05, 0.025, 31))
    assert set(values[30:]) == {values[30]}


def test_dinos_teacher_temperature_changes_once_an_epoch_as_its_linspace_does():
    settings = dict(teacher_temperature_start=0.04, teacher_temperature=0.07)
    settings |= dict(teacher_temperature_epochs=4, stepwise_temperature=True)
    values = [at(s, **settings).teacher_temperature for s in range(STEPS)]
    expected = np.concatenate([np.linspace(0.04, 0.07, 4), np.full(4, 0.07)])
    np.testing.assert_allclose(values, np.repeat(expected, PER_EPOCH))


@pytest.mark.parametrize("stepwise", [True, False])
def test_a_temperature_without_a_warm_up_is_the_final_one_at_once(stepwise):
    settings = dict(teacher_temperature=0.03, teacher_temperature_start=0.9)
    settings |= dict(teacher_temperature_epochs=0, stepwise_temperature=stepwise)
    assert at(0, **settings).teacher_temperature == pytest.approx(0.03)


@pytest.mark.parametrize("weighting", ["ent", "ent-st", "kl", "var", "own"])
def test_gamma_falls_from_half_of_ln_c_to_its_target_in_units_of_ln_c(weighting):
    values = [at(s, weighting=weighting, gamma=0.06, gamma_epochs=3).gamma for s in range(STEPS)]
    ramp = np.concatenate([np.linspace(0.5, 0.06, 31), np.full(STEPS - 31, 0.06)])
    np.testing.assert_allclose(values, ramp * math.log(CODES))


def test_gammas_default_target_is_a_twentieth_of_ln_c():
    assert at(STEPS - 1, gamma_epochs=1).gamma == pytest.approx(0.05 * math.log(CODES))


def test_gamma_without_a_ramp_is_at_its_target_at_once():
    assert at(0, gamma=0.1, gamma_epochs=0).gamma == pytest.approx(0.1 * math.log(CODES))


def test_a_target_gamma_above_the_start_does_not_rise_from_below():
    values = [at(s, gamma=2.0, gamma_epochs=3).gamma for s in range(STEPS)]
    np.testing.assert_allclose(values, 2.0 * math.log(CODES))


@pytest.mark.parametrize("weighting", ["prob", "prob-te"])
def test_probs_gamma_is_taken_as_it_is_from_the_first_step(weighting):
    assert at(0, weighting=weighting).gamma == 1.0
    assert at(0, weighting=weighting, gamma=0.3).gamma == 0.3
    assert at(STEPS - 1, weighting=weighting, gamma=0.3).gamma == 0.3


def test_settings_and_weightings_agree_on_whose_gamma_is_in_nats():
    for name, scheme in SCHEMES.items():
        usual = as_temperature(scheme, None, CODES)
        loss = LossConfig(weighting=name)
        in_nats = loss.settled_gamma * (math.log(CODES) if loss.gamma_in_nats else 1)
        assert scheme.hard or usual == pytest.approx(in_nats), name


def test_gamma_stays_positive_with_a_single_code():
    assert at(STEPS - 1, codes=1, gamma_epochs=0).gamma > 0


def test_codes_are_frozen_for_whole_epochs_from_the_first_step():
    frozen = [at(s, freeze_codes_epochs=1).codes_frozen for s in range(STEPS)]
    assert frozen == [True] * PER_EPOCH + [False] * (STEPS - PER_EPOCH)
    assert not at(0, freeze_codes_epochs=0).codes_frozen


@pytest.mark.parametrize("warmup", [0, 10])
def test_a_run_of_one_step_is_at_its_end_and_finite(warmup):
    now = at(0, steps=1, warmup_epochs=warmup, min_lr=1e-5, weight_decay_end=0.4)
    assert now.lr == (0.0 if warmup else 1e-5)
    assert now.weight_decay == pytest.approx(0.4)
    assert now.momentum == 1.0
