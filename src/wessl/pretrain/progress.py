"""The progress line: what it says, and what it leaves out when the terminal is narrow."""

import math
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

Row = dict[str, Any]

KEEP = (
    "step", "loss", "eta", "epoch", "probe", "speed", "entropy", "codes", "lr", "data", "heads",
    "rank", "mfu", "ms",
)  # fmt: skip
"""The parts, the most important first: a narrow line loses those at the end."""


def duration(seconds: float) -> str:
    """``75 -> '1:15'``, ``4000 -> '1:06:40'``, two days and more ``'2d 3:00:00'``."""
    if not math.isfinite(seconds):
        return "?"
    minutes, s = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24}d {hours % 24}:{minutes:02d}:{s:02d}"
    return f"{hours}:{minutes:02d}:{s:02d}" if hours else f"{minutes}:{s:02d}"


def parts(row: Row) -> dict[str, str]:
    """What there is to say of a row of metrics, in the order of the line."""
    said = {"step": f"step {row['step']}/{row['steps']}", "epoch": f"epoch {row['epoch']:.1f}"}
    if "loss" in row:
        said |= _of_training(row)
    if "images_per_second" in row:
        said["speed"] = f"{row['images_per_second']:.0f} img/s"
    if "ms" in row:
        said["ms"] = f"{row['ms']:.0f} ms"
        if row.get("mfu") is not None:
            said["mfu"] = f"MFU {100 * row['mfu']:.0f} %"
        said["data"] = f"data wait {100 * row['data_wait']:.0f} %"
    if "eta" in row:
        said["eta"] = f"ETA {duration(row['eta'])}"
    if row.get("knn") is not None:
        said["probe"] = f"k-NN {100 * row['knn']:.1f} %"
    return said


def _of_training(row: Row) -> dict[str, str]:
    said = {
        "loss": f"loss {row['loss']:.3f}",
        "lr": f"lr {row['lr']:.1e}",
        "entropy": f"entropy {row['teacher_entropy']:.2f}/{math.log(row['codes']):.2f}",
        "codes": f"codes {_span(row['codes_used'])}/{row['codes']}",
    }
    shares = row["head_shares"]
    if len(shares) > 1:
        span = _span([round(100 * share) for share in shares if math.isfinite(share)])
        said["heads"] = f"heads {row['heads_effective']:.1f}/{len(shares)} of {span} %"
    return said | {"rank": f"rank {row['rank']:.1f}"}


def _span(values: list[int]) -> str:
    """The least and the most of all heads."""
    if not values:
        return "?"
    low, high = min(values), max(values)
    return f"{low}" if low == high else f"{low}-{high}"


def line(row: Row, width: float = math.inf) -> str:
    """A row of metrics in at most ``width`` characters; the least important parts go first."""
    said = parts(row)
    for name in (*reversed(KEEP), None):
        words = "  ".join(said.values())
        if len(words) <= width or name is None or len(said) == 1:
            return words
        said.pop(name, None)
    return words


@dataclass
class ProgressLine:
    """A row, drawn as wide as the terminal is at that moment; never on two lines."""

    row: Row

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        words = self.row.get("words") or line(self.row, options.max_width)
        yield Text(words, no_wrap=True, overflow="crop")
