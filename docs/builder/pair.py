"""Tables from the records of runs of Imagenette at 160 pixels: long ones, and short trials."""

import json
from pathlib import Path
from typing import Any

from wessl.study.intervals import paired, summary
from wessl.study.text import grid, own_difference, plus_minus

State = dict[str, Any]
RECORDS = Path(__file__).parents[2] / "benchmarks" / "records"
ONE, MANY = "one head", "16 projections over one codebook, `ent`"
PAIRS = {
    r"DINO\*": {ONE: ONE, MANY: MANY},
    r"MSN\*": {ONE: "MSN*, one head", "8 heads, `ent`": "MSN*-ent, 8 heads"},
}
"""By method: one head and many, as the table calls them and as the record does."""
SHOWN = ("the middle 160 of 183 pixels", "the middle 224 of 256 pixels")
PROTOCOLS = ("k-NN", "1-shot", "2-shot", "5-shot", "13-shot", "linear-fast")
TRIALS = {
    "b128": "128, one head",
    "b128 ent16 shared": "128, 16 projections over one codebook, `ent`",
    "b128 ent16": "128, 16 whole heads, `ent`",
    "b64": "64, one head",
    "b64 frozen codes": "64, one head, frozen codes",
    "b64 ent16 shared": "64, 16 projections over one codebook, `ent`",
    "b256": "256, one head, twice the learning rate",
}


def table() -> str:
    """One head, many, and the gain paired by seed, by what of a picture is shown."""
    lines = []
    for seen in SHOWN:
        lines.append([f"**{seen}**", *[""] * len(PROTOCOLS)])
        for method, pair in PAIRS.items():
            for words, name in pair.items():
                found = [summary(by_seed(name, seen, protocol)) for protocol in PROTOCOLS]
                lines.append([f"{method}, {words}", *(plus_minus(n, 1) for n in found)])
            seeds = ", one seed" * (found[0]["n"] == 1)
            gains = [gain(protocol, seen, *pair.values()) for protocol in PROTOCOLS]
            lines.append([f"{method}, gain{seeds}", *gains])
    return grid(["", *PROTOCOLS], lines) + "\n"


def gain(protocol: str, seen: str = SHOWN[-1], one: str = ONE, many: str = MANY) -> str:
    """In points, with its interval over seeds."""
    found = paired(by_seed(many, seen, protocol), by_seed(one, seen, protocol))
    return own_difference(found, 1)


def by_seed(name: str, seen: str, protocol: str) -> dict[int, float]:
    """Accuracies in per cent."""
    return {
        run["seed"]: 100 * run["results"][seen][protocol]["accuracy"]
        for run in runs()
        if run["name"] == name
    }


def runs() -> list[State]:
    found: list[State] = json.loads((RECORDS / "runs-imagenette160.json").read_text())["runs"]
    return found


def trials() -> str:
    found = json.loads((RECORDS / "trials-imagenette160.json").read_text())["trials"]
    by_name = {trial["name"]: trial["results"] for trial in found}
    lines = [
        [words, *(f"{value:.1f}" for value in by_name[name].values())]
        for name, words in TRIALS.items()
    ]
    return grid(["batch, heads", *by_name["b128"]], lines) + "\n"


TABLES = {"runs-imagenette160": table, "trials-imagenette160": trials}
