"""What a run says: one line that changes in a terminal, a plain one now and then elsewhere."""

import time
from typing import Any

from rich.console import Console as Terminal
from rich.live import Live

from wessl.pretrain.progress import ProgressLine, duration, line
from wessl.run import Run

Row = dict[str, Any]
REFRESH = 0.1
"""Seconds between two drawings of the line: faster is not seen."""


class Console:
    """Prints what the loop reports: rows, probes and messages."""

    def __init__(self, quiet: bool = False, every: float = 10.0, terminal: Terminal | None = None):
        self.terminal = terminal or Terminal(stderr=True, force_jupyter=False)
        self.quiet, self.every = quiet, every
        self.moving = not quiet and self.terminal.is_terminal and not self.terminal.is_dumb_terminal
        self.live: Live | None = None
        self.row: Row = {}
        self.probe: float | None = None
        self.first: tuple[int, float] | None = None
        self.began = self.printed = time.monotonic()
        self.said: list[str] = []
        self.run: Run | None = None

    def log_to(self, run: Run) -> None:
        """From now on, and with what was said before, the run's log has it too."""
        self.run = run
        for words in self.said:
            run.log(words)

    def __call__(self, row: Row) -> None:
        if "message" in row:  # the loop has logged it
            self.say(row["message"], log=False)
        elif "probe" in row:
            self.probe = row["probe"].get("knn")
            shares = {k: v for k, v in row["probe"].items() if k != "pictures"}
            numbers = "  ".join(f"{_NAMES.get(k, k)} {100 * v:.1f} %" for k, v in shares.items())
            self.say(f"step {row['step']}  epoch {row['epoch']:.1f}  {numbers}")
        else:
            last = row["step"] == row["steps"]  # whose own probe is still to come
            self._progress(row | {"knn": None if last else self.probe})

    def say(self, words: str, log: bool = True) -> None:
        if log and self.run is not None:
            self.run.log(words)
        elif log:
            self.said.append(words)
        if not self.quiet:
            self._print(words)

    def tick(self, step: int, steps: int, epoch: float, pictures: int) -> None:
        """A step is done; between two rows of metrics only its number and the time change."""
        moved = dict(step=step, steps=steps, epoch=epoch) | self._pace(step, steps, pictures)
        if self.moving and self._due(REFRESH):
            self._draw(self.row | moved)
        elif not self.moving and not self.quiet and self._due(3 * self.every):
            self._print(line(moved))

    def doing(self, words: str) -> None:
        """What takes long before the first step."""
        if self.moving:
            self._draw({"words": words})
        elif not self.quiet:
            self._print(words)

    def decoding(self, done: int, total: int) -> None:
        """Progress of the picture cache."""
        if done == 1:
            self.began = time.monotonic()
        last = done == total and self.live is not None
        if not self.quiet and (last or self._due(REFRESH if self.moving else self.every)):
            left = (time.monotonic() - self.began) * (total - done) / done
            words = f"decoding pictures {done}/{total}  ETA {duration(left)}"
            if self.moving:
                self._draw({"words": words})
            else:
                self._print(words)
        if last:
            self.close()

    def close(self) -> None:
        """Leaves the terminal as it was found, the last line standing."""
        if self.live is not None:
            self.live.stop()
            self.live = None

    def _progress(self, row: Row) -> None:
        self.row = row
        last = row["step"] == row["steps"]
        if self.quiet or not (last or self._due(REFRESH if self.moving else self.every)):
            return
        if self.moving:
            self._draw(row)
        else:
            self._print(line(row))
        if last:
            self.close()

    def _pace(self, step: int, steps: int, pictures: int) -> Row:
        """By the last row; before there is one, by the steps after the first, which starts slow."""
        if "ms" in self.row:
            return dict(eta=(steps - step) * self.row["ms"] / 1e3)
        if self.first is None:
            self.first = step, time.monotonic()
        passed, seconds = step - self.first[0], time.monotonic() - self.first[1]
        if passed < 2 or seconds <= 0:
            return {}
        each = seconds / passed
        return dict(images_per_second=pictures / each, eta=(steps - step) * each)

    def _due(self, interval: float) -> bool:
        return time.monotonic() - self.printed >= interval

    def _draw(self, row: Row) -> None:
        self.printed = time.monotonic()
        if self.live is None:
            self.live = Live(console=self.terminal, auto_refresh=False)
            self.live.start()
        self.live.update(ProgressLine(row), refresh=True)

    def _print(self, words: str) -> None:
        if not self.moving:
            self.printed = time.monotonic()
        self.terminal.print(words, markup=False, highlight=False, emoji=False, soft_wrap=True)


_NAMES = {"knn": "k-NN"}
