"""The progress bar as a terminal shows it."""

import io
import sys

from wessl.evaluate.features.progress import bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(monkeypatch, work):
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with bar("features of [photos]") as progress:
        work(progress)
    return screen.getvalue()


def test_the_last_count_is_shown_with_its_total(monkeypatch):
    def work(progress):
        progress(3, 8)
        progress(8, 8)

    text = shown(monkeypatch, work)
    assert "features of [photos]" in text
    assert "8/8" in text
    assert "?" not in text.replace("\x1b[?25", "")  # which hides and shows the cursor


def test_what_is_ready_at_once_shows_no_count(monkeypatch):
    text = shown(monkeypatch, lambda progress: None)
    assert "features of" not in text
    assert "/" not in text


def test_elsewhere_than_on_a_terminal_nothing_is_counted(capsys):
    with bar("features") as progress:
        assert progress is None
    assert capsys.readouterr() == ("", "")
