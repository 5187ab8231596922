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
    (ONE, MANY): r"gain, DINO\*",
    ("MSN*, one head", "MSN*-ent, 8 heads"): r"gain, MSN\*, one seed",
}
"""Runs of many heads beside one, and the gain in words."""
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
        for pair, words in PAIRS.items():
            for name in pair:
                found = (summary(by_seed(name, seen, protocol)) for protocol in PROTOCOLS)
                label = name.replace("*", r"\*")
                lines.append([label, *(plus_minus(number, 1) for number in found)])
            lines.append([words, *(gain(protocol, seen, pair) for protocol in PROTOCOLS)])
    return grid(["", *PROTOCOLS], lines) + "\n"


def gain(protocol: str, seen: str = SHOWN[-1], pair: tuple[str, str] = (ONE, MANY)) -> str:
    """Of many heads over one, in points, with its interval over seeds."""
    base, many = (by_seed(name, seen, protocol) for name in pair)
    return own_difference(paired(many, base), 1)


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
