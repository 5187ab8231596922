"""The report reads health from the log; these are the very lines training writes there."""

import pytest
import runs

from wessl.pretrain.health import MOST_STEPS, PATIENCE, RULES, Finding
from wessl.pretrain.loop import speak
from wessl.report.page import page
from wessl.report.record import ENOUGH
from wessl.report.story import read
from wessl.run import Run

BAD = dict(
    codes_used=[1, 1, 1, 1],
    head_shares=[0.97, 0.01, 0.01, 0.01],
    rank=1.2,
    skipped_steps=3,
    data_wait=0.4,
)


def found(kind):
    words = next(words for name, _, words, _ in RULES if name == kind)
    return Finding(kind, 40, words(runs.row(60, **BAD)), "something else")


def test_the_report_knows_how_long_training_waits_before_it_speaks():
    assert ENOUGH == PATIENCE * MOST_STEPS


@pytest.mark.parametrize("kind", [rule[0] for rule in RULES])
def test_a_finding_stands_until_the_log_says_it_is_over(kind, tmp_path):
    path = runs.make_run(tmp_path / "run")
    run, said = Run(path), []
    spoken = speak([found(kind)], set(), run, said.append)
    (story,) = read([path])
    assert [(one.kind, one.over) for one in story.findings] == [(kind, False)]
    assert str(found(kind)) in page([story])
    assert (f"Something is wrong: {found(kind)}" in page([story])) == (kind != "waiting")

    speak([], spoken, run, said.append)
    (story,) = read([path])
    assert [(one.kind, one.over) for one in story.findings] == [(kind, True)]
    assert story.troubles == []
    assert "It passed later." in page([story])


@pytest.mark.parametrize(
    ("last", "but"), [(150, ""), (140, ", but in fewer than 150 steps much of it cannot be")]
)
def test_a_healthy_run_is_said_to_be_one_if_it_is_long_enough_to_tell(tmp_path, last, but):
    rows = [runs.row(step) for step in range(10, last + 1, 10)]
    log = ["step 10", "healthy: no", "skipped health: x"]
    path = runs.make_run(tmp_path / "run", rows, log)
    assert f"Nothing suspicious was found{but}. Looked for:" in page(read([path]))


def test_the_troubled_of_several_runs_is_named(tmp_path):
    good = runs.make_run(tmp_path / "good")
    bad = runs.make_run(tmp_path / "bad", log=[f"health: {found('rank')}"])
    text = page(read([good, bad]))
    assert "Something is wrong in bad: see below." in text
    assert "Nothing suspicious was found in good, but" in text
