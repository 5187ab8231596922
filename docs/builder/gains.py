"""What sixteen heads gain over one: on all data in one table, and across two studies of one set."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docs.builder import pair

from wessl.study.intervals import paired
from wessl.study.text import grid, own_difference

State = dict[str, Any]
RESULTS = Path(__file__).parents[1] / "results"
WHOLE, SHARED = "ent, both", "ent, projection"
SETS = {
    "handwritten digits, 8x8, linear heads": "where-how-digits",
    "handwritten digits, 8x8, three-layer heads": "where-how-deep-digits",
    "MNIST, 28x28, linear heads (nothing tuned on it)": "where-how-mnist",
    "MNIST, 28x28, three-layer heads": "where-how-deep-mnist",
    "Tiny ImageNet, 64x64, three-layer heads": "where-how-tiny",
}
LABELS = ("1-shot", "13-shot")
FEW = ("1-shot", "2-shot", "5-shot", "13-shot")


@dataclass(frozen=True)
class Across:
    """Two rows of studies whose runs were paired by seed all the same."""

    words: str
    ours: tuple[str, str]
    over: tuple[str, str]


ONE, ENT = "base", "ent"
HELD = (
    Across(
        "**digits**: one head with frozen codes, over one head",
        ("weightings-fixed-digits", ONE),
        ("weightings-digits", ONE),
    ),
    Across(
        "16 whole heads with frozen codes, over 16 whole heads",
        ("weightings-fixed-digits", ENT),
        ("weightings-digits", ENT),
    ),
    Across(
        "16 whole heads, over one head, both with frozen codes",
        ("weightings-fixed-digits", ENT),
        ("weightings-fixed-digits", ONE),
    ),
    Across(
        "16 projections over one codebook, over one head with frozen codes",
        ("weightings-shared-digits", ENT),
        ("weightings-fixed-digits", ONE),
    ),
    Across(
        "**MNIST**: one head with frozen codes, over one head",
        ("weightings-fixed-mnist", ONE),
        ("where-how-mnist", ONE),
    ),
    Across(
        "16 whole heads with frozen codes, over 16 whole heads",
        ("weightings-fixed-mnist", ENT),
        ("where-how-mnist", WHOLE),
    ),
    Across(
        "16 whole heads, over one head, both with frozen codes",
        ("weightings-fixed-mnist", ENT),
        ("weightings-fixed-mnist", ONE),
    ),
    Across(
        "16 projections over one codebook, over one head with frozen codes",
        ("where-how-mnist", SHARED),
        ("weightings-fixed-mnist", ONE),
    ),
)
EQUAL_WEIGHTS = (
    Across(
        "digits: `ent` over `unif`",
        ("weightings-shared-digits", ENT),
        ("weightings-shared-digits", "unif"),
    ),
    Across(
        "MNIST: `ent` over `unif` (three seeds)",
        ("weightings-shared-mnist", ENT),
        ("weightings-shared-mnist", "unif"),
    ),
)

SHARED_OR_WHOLE = tuple(
    Across(f"{words}, over 16 whole heads", (study, SHARED), (study, WHOLE))
    for words, study in SETS.items()
)
OVER_TWO = tuple(
    Across(f"{m} projections, over two", (study, f"DINO*, m = {m}"), (study, "DINO*, m = 2"))
    for study in ("heads-shared-mnist",)
    for m in (4, 8, 16)
)


def summary() -> str:
    """One line a set of pictures, the paper's last."""
    lines = []
    for words, study in SETS.items():
        rows = {row["name"]: row for row in of_study(study)["rows"]}
        seeds = str(len(rows[SHARED]["results"]["1-shot"]["seeds"]))
        found = [
            rows[name]["results"][of]["difference"] for name in (WHOLE, SHARED) for of in LABELS
        ]
        lines.append([words, seeds, *(own_difference(gain, 1) for gain in found)])
    large = {row["name"]: row for row in of_study("methods-imagenette")["rows"]}["DINO*-ent (16)"]
    whole = [f"{large['results'][of]['difference']['mean']:+.1f}" for of in LABELS]
    lines.append(["Imagenette, 224x224, three-layer heads (unequal starts)", "1", *whole, "", ""])
    shared = [pair.gain(of) for of in LABELS]
    seeds = str(len({run["seed"] for run in pair.runs()}))
    lines.append(["Imagenette, 160x160, three-layer heads", seeds, "", "", *shared])
    rows = {row["name"]: row for row in of_study("where-how-tiny")["rows"]}
    papers = [
        rows[name]["results"][of]["paper_difference"] for name in (WHOLE, SHARED) for of in LABELS
    ]
    lines.append(
        [
            "*the paper: ImageNet, 224x224, three-layer heads*",
            "*3*",
            *(f"*{gain:+.1f}*" for gain in papers),
        ]
    )
    titles = ["points over one head", "seeds"]
    titles += [f"16 whole heads, {of}" for of in LABELS]
    titles += [f"16 projections over one codebook, {of}" for of in LABELS]
    return grid(titles, lines) + "\n"


def across(pairs: tuple[Across, ...]) -> str:
    lines = []
    for one in pairs:
        gains = [paired(by_seed(*one.ours, of), by_seed(*one.over, of)) for of in FEW]
        lines.append([one.words, *(own_difference(gain, 1) for gain in gains)])
    return grid(["", *FEW], lines) + "\n"


def of_study(name: str) -> State:
    found: State = json.loads((RESULTS / f"{name}.json").read_text())
    return found


def by_seed(study: str, name: str, column: str) -> dict[int, float]:
    (row,) = (row for row in of_study(study)["rows"] if row["name"] == name)
    return {int(seed): value for seed, value in row["results"][column]["seeds"].items()}


TABLES = {
    "gains": summary,
    "held-codes": lambda: across(HELD),
    "equal-weights": lambda: across(EQUAL_WEIGHTS),
    "shared-or-whole": lambda: across(SHARED_OR_WHOLE),
    "over-two": lambda: across(OVER_TWO),
}
