"""Says in words when training goes wrong, since when, and what to try.

Reads only the rows of metrics, so a finding can be traced to the numbers it came from.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, takewhile
from typing import Any

Row = dict[str, Any]
PATIENCE = 3
"""Rows in a row that must agree before a finding is spoken: one odd row is noise."""
MOST_STEPS = 50
"""From one row of metrics to the next, unless the user wants them further apart."""

MOST_WAIT = 0.05
"""Share of the time that pictures may be waited for."""


@dataclass(frozen=True)
class Finding:
    kind: str
    since: int
    words: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.words} (since step {self.since}). Try: {self.remedy}."


def one_code(row: Row, best_rank: float) -> bool:
    """Half of the heads or more put nearly every picture into the same few codes.

    Few are a tenth of a small codebook, of a large one a hundred or a fiftieth: the largest are
    never used up. A random encoder does so too, so the first epoch does not count. Rows of earlier
    versions do not say how many pictures there are.
    """
    seen = row["pictures_seen"]
    possible = min(row["codes"], seen, row.get("pictures", seen))
    used = sorted(row["codes_used"])[(len(row["codes_used"]) - 1) // 2]
    few = max(1, min(0.1 * possible, max(100, 0.02 * possible)))
    return row["epoch"] >= 1 and possible >= 8 and used <= few


def uniform(row: Row, best_rank: float) -> bool:
    """Nothing is predicted: both the teacher's entropy and the student's loss sit at ln c."""
    ln_c = math.log(row["codes"])
    return row["epoch"] >= 1 and min(row["cross_entropy"], row["teacher_entropy"]) > 0.985 * ln_c


def one_head(row: Row, best_rank: float) -> bool:
    """One head of several has more of the loss than all the others together.

    Without Sinkhorn, the one that uses the fewest codes is the surest and takes their weight.
    """
    shares = row["head_shares"]
    return len(shares) > 2 and max(shares) > 0.5


def dead_heads(row: Row, best_rank: float) -> bool:
    shares = row["head_shares"]
    return len(shares) > 1 and min(shares) < 0.1 / len(shares)


def falling_rank(row: Row, best_rank: float) -> bool:
    """Representations use hardly any directions, or a fifth of those they once used.

    Half would be too much to ask: a random encoder scatters, and a good one keeps what matters.
    """
    return row["rank"] < 2 or row["rank"] < 0.2 * best_rank


def nonfinite(row: Row, best_rank: float) -> bool:
    return row["skipped_steps"] > 0


def waiting(row: Row, best_rank: float) -> bool:
    """Pictures come more slowly than they are learnt from."""
    return row["data_wait"] > MOST_WAIT


def _ruler(row: Row) -> str:
    share, head = max((share, j) for j, share in enumerate(row["head_shares"]))
    used = f"{row['codes_used'][head]} of {row['codes']} codes in use"
    return f"head {head} has {share:.0%} of the weight in the loss, with {used}"


def _dead(row: Row) -> str:
    m = len(row["head_shares"])
    dead = [str(j) for j, share in enumerate(row["head_shares"]) if share < 0.1 / m]
    which = f"heads {', '.join(dead)} have" if len(dead) > 1 else f"head {dead[0]} has"
    return f"{which} hardly any weight in the loss"


Rule = tuple[str, Callable[[Row, float], bool], Callable[[Row], str], str]
RULES: list[Rule] = [
    (
        "one-code",
        one_code,
        lambda row: f"collapse: only {min(row['codes_used'])} of {row['codes']} codes are in use",
        "--loss.target sinkhorn if it is another, a larger --loss.me-max, fewer --heads.codes, a "
        "lower --optim.lr",
    ),
    (
        "uniform",
        uniform,
        lambda row: (
            f"no learning: predictions are uniform, loss at ln c = {math.log(row['codes']):.2f}, "
            f"teacher temperature {row['teacher_temperature']:.3g}, {row['steps']:,} steps in all"
        ),
        "a longer run where a thousand steps or fewer are all, with few pictures pretrained "
        "weights (--init) or another --seed, a lower --loss.teacher-temperature, fewer "
        "--heads.codes, a longer --optim.warmup-epochs, or milder crops",
    ),
    (
        "one-head",
        one_head,
        _ruler,
        "a larger --loss.gamma, --loss.me-max-heads weighted, fewer --heads.codes, or "
        "--loss.target sinkhorn if it is another",
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
    (
        "waiting",
        waiting,
        lambda row: f"{row['data_wait']:.0%} of the time goes into waiting for pictures",
        "--decode once with a --cache on a quick disk, more --workers, --jpeg gpu, for JPEGs "
        "pip install simplejpeg, or smaller pictures by wessl pack --short-side",
    ),
]


def breaks(rule: Callable[[Row, float], bool]) -> Callable[[tuple[Row, float]], bool]:
    return lambda row_and_best: rule(*row_and_best)


def rhythm(asked: int | None, steps: int) -> tuple[int, int]:
    """Steps from one row of metrics to the next, and how many rows must agree on a finding.

    A short run has its rows closer together, but a finding takes as many steps in it as in others,
    or half of the run.

    >>> rhythm(None, steps=100_000), rhythm(None, steps=500), rhythm(None, steps=120)
    ((50, 3), (10, 15), (2, 30))
    """
    if asked is not None:
        return asked, PATIENCE
    every = max(1, min(MOST_STEPS, steps // 50))
    half = max(PATIENCE, steps // every // 2)
    return every, min(half, math.ceil(PATIENCE * MOST_STEPS / every))


def examine(history: list[Row], patience: int = PATIENCE) -> list[Finding]:
    """What is wrong in the last rows of a run; nothing, for a healthy one."""
    ranks = (row["rank"] if math.isfinite(row["rank"]) else 0.0 for row in history)
    latest_first = list(zip(history, accumulate(ranks, max), strict=True))[::-1]
    findings = []
    for kind, rule, words, remedy in RULES:
        bad = [row for row, _ in takewhile(breaks(rule), latest_first)]
        if len(bad) >= (1 if kind == "nonfinite" else patience):
            findings.append(Finding(kind, bad[-1]["step"], words(bad[0]), remedy))
    if "one-head" in (finding.kind for finding in findings):  # that others have little is no news
        return [finding for finding in findings if finding.kind != "dead-heads"]
    return findings
