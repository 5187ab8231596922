"""The time a study still takes, by hand for runs half done, trained elsewhere, or failed."""

import math

import pytest

from wessl.run import Run
from wessl.study.time_left import Load, Remaining, trained_share


def make(path, step=None, steps=100, trained=False):
    run = Run.create(path, {})
    if step is not None:
        run.add_metrics(dict(step=step, steps=steps))
    if trained:
        for name in ("encoder.safetensors", "encoder.json"):
            (path / name).touch()
    return path


def test_the_share_done_of_a_training_is_that_of_its_last_row(tmp_path):
    assert trained_share(Run(tmp_path / "nowhere")) == 0
    run = Run(make(tmp_path / "a", 30))
    run.add_metrics(dict(step=40, steps=100))
    run.add_metrics(dict(step=40, probe=0.5))
    assert trained_share(run) == 0.4
    assert trained_share(Run(make(tmp_path / "b", 30, trained=True))) == 1


def test_runs_under_way_count_by_what_they_have_done(tmp_path):
    folders = [tmp_path / name for name in "abc"]
    remaining = Remaining(dict.fromkeys(folders, Load(80.0, 20.0)), at_once=2)
    assert remaining.seconds(60.0, set()) == math.inf  # nothing to judge by
    make(folders[1], 50)
    # After 60 s two places did 100 + 40 of work; 60 and 100 are left, on two places again.
    left = remaining.seconds(60.0, {folders[0]})
    assert left == pytest.approx(100 * 60 * 2 / 140)  # the longest of them decides
    assert remaining.seconds(90.0, set(folders)) == 0


def test_what_another_study_trained_is_only_measured(tmp_path):
    folders = [make(tmp_path / "a", trained=True), make(tmp_path / "b", trained=True)]
    folders += [tmp_path / "c", tmp_path / "d"]
    remaining = Remaining(dict.fromkeys(folders, Load(90.0, 10.0)), at_once=1)
    assert remaining.share == pytest.approx((10 + 10 + 100 + 100) / 400)
    # A measuring that took 2 s says that the rest, 21 times as much, takes 42.
    assert remaining.seconds(2.0, {folders[0]}) == pytest.approx(42)


def test_a_run_goes_no_quicker_when_it_is_the_last(tmp_path):
    folders = [tmp_path / str(i) for i in range(4)]
    remaining = Remaining(dict.fromkeys(folders, Load(100.0, 0.0)), at_once=4)
    make(folders[3], 75)
    assert remaining.seconds(40.0, set(folders[:3])) == pytest.approx(25 * 4 * 40 / 375)


def test_a_failed_run_is_no_work_left_and_little_done(tmp_path):
    folders = [tmp_path / str(i) for i in range(3)]
    remaining = Remaining(dict.fromkeys(folders, Load(100.0, 0.0)), at_once=1)
    assert remaining.seconds(1.0, {folders[0]}, {folders[0]}) == math.inf
    make(folders[0], 10)
    assert remaining.seconds(10.0, {folders[0]}, {folders[0]}) == pytest.approx(200)
