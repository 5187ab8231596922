"""Tables from the records of runs of Imagenette at 160 pixels: two long ones, and short trials."""

import json
import math
import statistics
from pathlib import Path
from typing import Any

from wessl.study.text import grid

State = dict[str, Any]
RECORDS = Path(__file__).parents[2] / "benchmarks" / "records"
USUAL = "the middle 224 of 256 pixels"
TRIALS = {
    "b128": "128, one head",
    "b128 ent16 shared": "128, 16 projections over one codebook, `ent`",
    "b128 ent16": "128, 16 whole heads, `ent`",
    "b64": "64, one head",
    "b64 frozen codes": "64, one head, codes held still",
    "b64 ent16 shared": "64, 16 projections over one codebook, `ent`",
    "b256": "256, one head, twice the learning rate",
}


def runs() -> list[State]:
    """One head, and sixteen projections over one codebook."""
    found: list[State] = json.loads((RECORDS / "runs-imagenette160.json").read_text())["runs"]
    return found


def usual_gain(protocol: str) -> str:
    one, many = (run["results"][USUAL][protocol] for run in runs())
    return gain(one, many)


def table() -> str:
    """One head, sixteen, and the gain, by what is tested."""
    one, many = runs()
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


def trials() -> str:
    found = json.loads((RECORDS / "trials-imagenette160.json").read_text())["trials"]
    by_name = {trial["name"]: trial["results"] for trial in found}
    lines = [
        [words, *(f"{value:.1f}" for value in by_name[name].values())]
        for name, words in TRIALS.items()
    ]
    return grid(["batch, heads", *by_name["b128"]], lines) + "\n"


TABLES = {"runs-imagenette160": table, "trials-imagenette160": trials}
