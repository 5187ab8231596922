"""The newcomer's first command, shortened to a third of an epoch."""

import json

from wessl.verbs.demo import METHODS, demo


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
    assert "<svg" in (tmp_path / "demo" / "report.html").read_text()

    demo(str(tmp_path / "demo"), epochs=0.3, seeds=1, draws=3)
    again = capsys.readouterr().out
    assert [row for row in again.splitlines() if "│" in row] == [
        row for row in printed.splitlines() if "│" in row
    ]
