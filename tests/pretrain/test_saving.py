"""When a run saves itself, told by a clock that the tests move."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import advance, build_trainer, tiny_config

from wessl.pretrain.loop import train
from wessl.pretrain.saving import BYTES_PER_SECOND, Saving
from wessl.run import Run


class Hands:
    """A clock."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def saves(every, steps, step_takes, save_takes, size=0.0, begin=0, stalls=()):
    """The steps at which a run saves itself before its last, and the seconds that it takes.

    ``stalls`` numbers saves that meet a disk which stands still for ten minutes.
    """
    clock = Hands()
    saving, found = Saving(every, steps, begin, size, clock), []
    for step in range(begin + 1, steps):
        clock.now += step_takes
        if saving.due(step):
            found.append(step)
            with saving.timed(step):
                clock.now += 600 if len(found) - 1 in stalls else save_takes
    return found, clock.now - Hands.now


def test_a_short_run_is_saved_at_every_tenth():
    found, _ = saves(None, steps=1000, step_takes=0.24, save_takes=0.1)
    assert found == list(range(100, 1000, 100))


def test_a_long_run_is_saved_every_300_seconds():
    found, _ = saves(None, steps=10_000, step_takes=1.0, save_takes=1.0)
    assert found[:3] == [301, 602, 903]


def test_a_save_that_takes_long_is_waited_for_fifty_times_as_long():
    found, _ = saves(None, steps=240, step_takes=1.0, save_takes=2.0)
    assert found == [24, 124, 224]


def test_one_save_that_met_a_busy_disk_does_not_postpone_the_next():
    found, _ = saves(None, steps=10_000, step_takes=1.0, save_takes=1.0, stalls=(1, 3))
    assert found[:6] == [301 * i for i in range(1, 7)]


def test_saves_are_half_an_hour_apart_at_most():
    found, _ = saves(None, steps=10_000, step_takes=1.0, save_takes=100.0)
    assert found[1:] == [301 + 1800 * i for i in range(1, 6)]


def test_before_the_first_save_its_bytes_tell_how_long_it_will_take():
    found, _ = saves(None, steps=240, step_takes=1.0, save_takes=2.0, size=3e9)
    assert found == [100, 200]


def test_the_first_save_of_a_run_comes_sooner_than_the_others():
    """Until then a kill loses all; later ones would cost too much."""
    found, _ = saves(None, steps=126, step_takes=0.7, save_takes=1.4, size=4.3e8)
    assert found[0] == 21  # after ten saves' time, and more than a tenth of the run
    assert found[1:] == [121]
    found, _ = saves(None, steps=126, step_takes=0.7, save_takes=1.4, size=4.3e8, begin=40)
    assert found == []


def test_a_run_that_goes_on_counts_tenths_from_where_it_is():
    found, _ = saves(None, steps=100, step_takes=1.0, save_takes=0.0, begin=37)
    assert found == [47, 57, 67, 77, 87, 97]


@given(st.integers(1, 3000), st.floats(1e-3, 400), st.floats(0, 36))
def test_saving_costs_about_two_percent_at_most(steps, step_takes, save_takes):
    size = BYTES_PER_SECOND * save_takes
    found, seconds = saves(None, steps, step_takes, save_takes, size=size)
    assert max(0, len(found) - 1) * save_takes <= 0.0201 * seconds
    assert len(found) * save_takes <= 0.101 * seconds
    found, seconds = saves(None, steps + 1, step_takes, save_takes, size=size, begin=1)
    assert len(found) * save_takes <= 0.0201 * seconds
    found, seconds = saves(None, steps, step_takes, save_takes, size=0.0)
    after_the_first = max(0, len(found) - 1)
    assert after_the_first * save_takes <= 0.0201 * seconds


@given(st.integers(0, 500), st.integers(1, 300), st.integers(1, 100), st.integers(0, 50))
def test_what_the_user_sets_stays_that_whatever_a_save_costs(every, steps, takes, save_takes):
    found, _ = saves(float(every), steps, takes, save_takes, size=1e12)
    last, now, expected = 0, 0, []
    for step in range(1, steps):
        now += takes
        if now - last > every:
            expected.append(step)
            last, now = now, now + save_takes
    assert found == expected


def test_who_is_due_says_so_once_and_not_again_before_the_save():
    clock = Hands()
    saving = Saving(None, 100, 0, 0, clock)
    assert [saving.due(step) for step in (9, 10, 11)] == [False, True, False]
    clock.now += 301
    assert [saving.due(step) for step in (12, 13)] == [True, False]


def test_the_size_of_a_checkpoint_is_known_beforehand(pictures, tmp_path):
    trainer = build_trainer(pictures, tiny_config(**{"heads.hidden_dim": 512}))
    advance(trainer, 1)
    path = Run.create(tmp_path / "run", {}).save_checkpoint(1, trainer.state(), keep=1)
    assert trainer.state_bytes == pytest.approx(path.stat().st_size, rel=0.2)


def test_by_default_a_run_is_saved_when_a_tenth_is_done(pictures, tmp_path):
    trainer = build_trainer(pictures, tiny_config(), save_every=None, keep=20)
    run = Run.create(tmp_path / "run", {})
    train(trainer, run, lambda row: None)
    steps = [int(path.stem.removeprefix("step-")) for path in run.checkpoints.glob("*.pt")]
    assert min(steps) == 2  # of 12
    assert max(steps) == 12
