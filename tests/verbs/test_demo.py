"""The newcomer's first command, shortened to a third of an epoch."""

import json

from wessl.verbs.demo import METHODS, demo


def test_the_demo_shows_one_table_and_the_same_one_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WESSL_CACHE", str(tmp_path / "cache"))
    demo(str(tmp_path / "demo"), epochs=0.3, seeds=1, draws=3)
    printed = capsys.readouterr().out
    for words in ("raw pixels", "untrained encoder", *METHODS.values(), "gain, ent", "±"):
        assert words in printed
    pixels = next(line for line in printed.splitlines() if "raw pixels" in line)
    assert "97.8" in pixels  # k-NN of raw pixels does not depend on training
    for recipe in METHODS:
        results = json.loads(
            (tmp_path / "demo" / f"{recipe}-seed0" / "results" / "demo.json").read_text()
        )
        assert 0.2 < results["1-shot"]["accuracy"] < results["k-NN"]["accuracy"]
        assert results["5-shot"]["protocol"]["draws"] == 3

    demo(str(tmp_path / "demo"), epochs=0.3, seeds=1, draws=3)
    again = capsys.readouterr().out
    assert [row for row in again.splitlines() if "│" in row] == [
        row for row in printed.splitlines() if "│" in row
    ]
