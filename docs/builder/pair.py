"""A table from the record of two long runs: one head, sixteen, and the gain, by what is tested."""

import json
import math
import statistics
from pathlib import Path
from typing import Any

from wessl.study.text import grid

State = dict[str, Any]
RECORD = Path(__file__).parents[2] / "benchmarks" / "records" / "runs-imagenette160.json"


def table() -> str:
    one, many = json.loads(RECORD.read_text())["runs"]
    protocols = list(next(iter(one["results"].values())))
    lines = []
    for seen, results in one["results"].items():
        lines.append([f"**{seen}**", *[""] * len(protocols)])
        for run in (one, many):
            found = run["results"][seen]
            values = [f"{100 * found[name]['accuracy']:.1f}" for name in protocols]
            lines.append([run["name"], *values])
        others = many["results"][seen]
        lines.append(["gain", *(gain(results[name], others[name]) for name in protocols)])
    return grid(["", *protocols], lines) + "\n"


def gain(one: State, many: State) -> str:
    """In points; of several draws of labels with the standard error over them, which are paired."""
    points = f"{100 * (many['accuracy'] - one['accuracy']):+.1f}"
    if "per_draw" not in one:
        return points
    apart = [100 * (b - a) for a, b in zip(one["per_draw"], many["per_draw"], strict=True)]
    return f"{points} ± {statistics.stdev(apart) / math.sqrt(len(apart)):.1f}"


TABLES = {"runs-imagenette160": table}
