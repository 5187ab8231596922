"""Says in words when training goes wrong, since when, and what to try.

Reads only the rows of metrics, so a finding can be traced to the numbers it came from.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
PATIENCE = 3
"""Rows in a row that must agree before a finding is spoken: one odd row is noise."""


@dataclass(frozen=True)
class Finding:
    kind: str
    since: int
    words: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.words} (since step {self.since}). Try: {self.remedy}."


def one_code(row: Row, history: list[Row]) -> bool:
    """Half of the heads or more put nearly every picture into the same few codes."""
    possible = min(row["codes"], row["pictures_seen"])
    used = sorted(row["codes_used"])[len(row["codes_used"]) // 2]
    return used <= max(1, 0.02 * possible) and possible >= 8


def uniform(row: Row, history: list[Row]) -> bool:
    """The student predicts nothing: its loss sits at ln c, or the teacher's entropy does."""
    ln_c = math.log(row["codes"])
    return row["epoch"] >= 1 and min(row["cross_entropy"], row["teacher_entropy"]) > 0.985 * ln_c


def dead_heads(row: Row, history: list[Row]) -> bool:
    shares = row["head_shares"]
    return len(shares) > 1 and min(shares) < 0.1 / len(shares)


def falling_rank(row: Row, history: list[Row]) -> bool:
    """Representations use under half the directions they once used, or hardly any."""
    best = max(old["rank"] for old in history)
    return row["rank"] < 2 or row["rank"] < 0.5 * best


def nonfinite(row: Row, history: list[Row]) -> bool:
    return row["skipped_steps"] > 0


def _dead(row: Row) -> str:
    m = len(row["head_shares"])
    dead = [str(j) for j, share in enumerate(row["head_shares"]) if share < 0.1 / m]
    which = f"heads {', '.join(dead)} have" if len(dead) > 1 else f"head {dead[0]} has"
    return f"{which} hardly any weight in the loss"


Rule = tuple[str, Callable[[Row, list[Row]], bool], Callable[[Row], str], str]
RULES: list[Rule] = [
    (
        "one-code",
        one_code,
        lambda row: f"collapse: only {min(row['codes_used'])} of {row['codes']} codes are in use",
        "--loss.target sinkhorn, or a larger --loss.me-max, or a lower --optim.lr",
    ),
    (
        "uniform",
        uniform,
        lambda row: (
            f"no learning: predictions are uniform, loss at ln c = {math.log(row['codes']):.2f}"
        ),
        "a lower --loss.teacher-temperature, fewer codes, milder crops, or a longer warm-up",
    ),
    (
        "dead-heads",
        dead_heads,
        _dead,
        "a larger --loss.gamma, or --loss.weighting unif to compare",
    ),
    (
        "rank",
        falling_rank,
        lambda row: f"representations shrink: effective rank {row['rank']:.1f}",
        "a lower --optim.lr, a larger --optim.batch-size, or more --heads.count",
    ),
    (
        "nonfinite",
        nonfinite,
        lambda row: f"{row['skipped_steps']} steps had NaN or infinite gradients and were skipped",
        "a lower --optim.lr, --optim.clip 1, or --precision fp32",
    ),
]


def examine(history: list[Row]) -> list[Finding]:
    """What is wrong in the last rows of a run; nothing, for a healthy one."""
    findings = []
    for kind, rule, words, remedy in RULES:
        bad = [rule(row, history[: i + 1]) for i, row in enumerate(history)]
        run = next((n for n, ok in enumerate(reversed(bad)) if not ok), len(bad))
        needed = 1 if kind == "nonfinite" else PATIENCE
        if run >= needed:
            findings.append(Finding(kind, history[-run]["step"], words(history[-1]), remedy))
    return findings
