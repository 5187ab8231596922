"""The progress line: one that changes in a terminal, a plain one now and then elsewhere."""

import math
import sys
import time
from typing import Any

from wessl.run import Run

Row = dict[str, Any]


def duration(seconds: float) -> str:
    """``75 -> '1:15'``, ``4000 -> '1:06:40'``."""
    minutes, s = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{s:02d}" if hours else f"{minutes}:{s:02d}"


def line(row: Row) -> str:
    """A row of metrics as the progress line shows it."""
    used = sum(row["codes_used"]) / len(row["codes_used"])
    parts = [
        f"step {row['step']}/{row['steps']}",
        f"epoch {row['epoch']:.1f}",
        f"loss {row['loss']:.3f}",
        f"lr {row['lr']:.1e}",
        f"entropy {row['teacher_entropy']:.2f}/{math.log(row['codes']):.2f}",
        f"codes {used:.0f}/{row['codes']}",
    ]
    if len(row["head_shares"]) > 1:
        parts.append(f"heads {row['heads_effective']:.1f}/{len(row['head_shares'])}")
    parts += [f"{row['images_per_second']:.0f} img/s", f"{row['ms']:.0f} ms"]
    if row.get("mfu") is not None:
        parts.append(f"MFU {100 * row['mfu']:.0f} %")
    parts += [f"data wait {100 * row['data_wait']:.0f} %", f"ETA {duration(row['eta'])}"]
    return "  ".join(parts)


class Console:
    """Prints what the loop reports: rows, probes and messages."""

    def __init__(self, quiet: bool = False, every: float = 10.0):
        self.quiet, self.every = quiet, every
        self.live = sys.stderr.isatty() and not quiet
        self.printed = time.monotonic()
        self.probe = ""
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
            numbers = "  ".join(f"{k} {100 * v:.1f} %" for k, v in row["probe"].items())
            self.probe = "  " + numbers
            self.say(f"step {row['step']}  epoch {row['epoch']:.1f}  {numbers}")
        else:
            self._progress(row)

    def say(self, words: str, log: bool = True) -> None:
        if log and self.run is not None:
            self.run.log(words)
        elif log:
            self.said.append(words)
        if self.quiet:
            return
        if self.live:
            sys.stderr.write("\r\x1b[K")
        print(words, file=sys.stderr, flush=True)

    def decoding(self, done: int, total: int) -> None:
        """Progress of the picture cache."""
        if time.monotonic() - self.printed >= (0.2 if self.live else self.every):
            self._show(f"decoding pictures {done}/{total}", done == total)

    def _progress(self, row: Row) -> None:
        last = row["step"] == row["steps"]
        if last or time.monotonic() - self.printed >= (0.0 if self.live else self.every):
            self._show(line(row) + (self.probe if self.live else ""), last)

    def _show(self, words: str, last: bool) -> None:
        if self.quiet:
            return
        self.printed = time.monotonic()
        if self.live:
            end = "\n" if last else ""
            sys.stderr.write(f"\r\x1b[K{words}{end}")
            sys.stderr.flush()
        else:
            print(words, file=sys.stderr, flush=True)
