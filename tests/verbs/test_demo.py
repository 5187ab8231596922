"""The newcomer's first command, shortened to a third of an epoch."""

import json
import re

from scipy import stats

import wessl
from wessl.verbs.demo import (
    DIGITS,
    METHODS,
    demo,
    mean_words,
    print_table,
    say_progress,
    train_one,
)


def shot_accuracy(out, recipe):
    (kept,) = (out / f"{recipe}-seed0" / "results").glob("evaluation-*.json")
    return json.loads(kept.read_text())["rows"][0]["results"]["1-shot"]["accuracy"]


def test_the_demo_shows_one_table_and_the_same_one_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WESSL_CACHE", str(tmp_path / "cache"))
    demo(str(tmp_path / "demo"), epochs=0.3, seeds=1, draws=3)
    printed = capsys.readouterr().out
    for words in ("raw pixels", "random encoder", *METHODS.values(), "gain, ent", "±"):
        assert words in printed
    pixels = next(line for line in printed.splitlines() if "raw pixels" in line)
    assert "97.6" in pixels  # k-NN of raw pixels does not depend on training
    for recipe in METHODS:
        (kept,) = (tmp_path / "demo" / f"{recipe}-seed0" / "results").glob("evaluation-*.json")
        own = json.loads(kept.read_text())["rows"][0]["results"]
        assert 0.2 < own["1-shot"]["accuracy"] < own["k-NN"]["accuracy"]
        assert own["5-shot"]["draws"] == 3
    assert str(tmp_path / "demo" / "report.html") in printed
    assert "16 heads" in printed
    assert "with\n--head-width 64 one head is nearly as good" in printed
    assert "one training each" in printed
    assert "trainings" not in printed
    page = (tmp_path / "demo" / "report.html").read_text()
    assert "<svg" in page
    # What sixteen heads brought is how far they are from one, not from each other.
    (sentence,) = re.findall(r'class="finding">(.*?)</p>', page)
    scores = {recipe: shot_accuracy(tmp_path / "demo", recipe) for recipe in METHODS}
    best = max(scores, key=scores.get)
    if best != "dino-star":
        more = 100 * (scores[best] - scores["dino-star"])
        assert f"{more:.1f} points more than for dino-star-seed0" in sentence

    demo(str(tmp_path / "demo"), epochs=0.3, seeds=1, draws=3)
    again = capsys.readouterr().out
    assert [row for row in again.splitlines() if "│" in row] == [
        row for row in printed.splitlines() if "│" in row
    ]


def test_what_stands_behind_an_accuracy_is_over_trainings_as_on_the_page(capsys):
    """Draws differ far more here than trainings do."""
    columns = ("1-shot", "2-shot", "5-shot", "k-NN")

    def results(accuracy):
        shot = dict(accuracy=accuracy, per_draw=[accuracy - 0.3, accuracy, accuracy + 0.3])
        return dict.fromkeys(columns[:3], shot) | {"k-NN": dict(accuracy=accuracy)}

    trained = [0.5, 0.51, 0.54]
    rows = {"raw pixels": [results(0.4)]}
    print_table(rows | {name: list(map(results, trained)) for name in METHODS.values()})
    lines = capsys.readouterr().out.splitlines()
    own = next(line for line in lines if "16 heads, ent" in line)
    assert own.count(f"51.7 ± {100 * stats.sem(trained):.1f}") == 4
    pixels = next(line for line in lines if "raw pixels" in line)
    assert pixels.count(f"40.0 ± {100 * stats.sem([0.1, 0.4, 0.7]):.1f}") == 3
    assert "over the trainings,\nas on the page" in mean_words(3, 30)


def test_progress_tells_how_many_are_done_and_the_time_left(tmp_path, capsys):
    folders = [tmp_path / name for name in ("done", "begun", "waiting")]
    for path, steps in zip(folders, ([10, 100], [20, 50]), strict=False):
        run = wessl.Run.create(path, {})
        for step in steps:
            run.add_metrics(dict(step=step, steps=100, loss=1.0))
    say_progress(folders, seconds=60, before=0.3)
    said = "training 3 encoders: 50 %, 1 of them done, 2.5 min left"
    assert said in capsys.readouterr().err


def test_half_of_the_demos_training_beats_raw_pixels_beyond_doubt(tmp_path, monkeypatch):
    monkeypatch.setenv("WESSL_CACHE", str(tmp_path / "cache"))
    run = train_one(tmp_path, 12, 8, "dino-star-ent", 0)
    sides = f"{DIGITS}/train", f"{DIGITS}/test"
    found = wessl.evaluate(run, *sides, protocols=["1-shot"], device="cpu")
    trained, pixels, untrained = (row["results"]["1-shot"] for row in found["rows"])
    assert trained["interval"][0] > pixels["interval"][1] > untrained["accuracy"]
