"""A run that misses its budget says so once, as soon as its speed is known."""

import wessl
from wessl.verbs.pretraining.budget_watch import watched


class Hands:
    """A clock."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def told(budget, seconds_a_step, steps=100, every=5):
    clock, rows, said = Hands(), [], []
    report = watched(rows.append, budget, said.append, clock)
    for step in range(every, steps + 1, every):
        clock.now = step * seconds_a_step
        report(dict(step=step, steps=steps, eta=(steps - step) * seconds_a_step))
        report(dict(step=step, message="something else"))
    assert len(rows) == 2 * steps // every
    return said


def test_a_run_three_times_as_slow_is_told_of_once():
    (words,) = told(budget=100, seconds_a_step=3)
    assert words.startswith("warning: this will take 5.0 min instead of the 1.7 min of --budget")


def test_a_little_late_or_without_a_budget_nothing_is_said():
    assert told(budget=100, seconds_a_step=1.4) == []
    assert told(budget=None, seconds_a_step=3) == []


def test_the_first_steps_which_compile_do_not_count():
    said = []
    clock = Hands()
    report = watched(lambda row: None, 100, said.append, clock)
    clock.now = 20
    report(dict(step=5, steps=100, eta=380))  # 4 s a step, mostly of compiling
    clock.now = 23
    report(dict(step=10, steps=100, eta=54))
    assert said == []


def test_a_real_run_on_a_machine_slower_than_reckoned_says_so(tmp_path, monkeypatch):
    # Any machine is too slow for that.
    monkeypatch.setattr("wessl.verbs.pretraining.budget_watch.FAR", 0.0)
    run = wessl.pretrain(
        "builtin://digits/test", tmp_path / "run", budget=6, device="cpu", quiet=True
    )
    assert (run.path / "train.log").read_text().count("--budget: the machine is busy") == 1
