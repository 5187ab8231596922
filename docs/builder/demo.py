"""The README's first table: what ``wessl demo`` measured, from its raw numbers."""

import json
from itertools import count, takewhile
from pathlib import Path
from typing import Any

from wessl.study.text import grid
from wessl.verbs.demo import COLUMNS, GAINING, METHODS, by_method, cell, folder, gain, gain_name

State = dict[str, Any]


def take(out: Path, data: str, machine: str, command: str | None) -> State:
    """What the demo's runs in ``out`` keep of it, seed by seed."""
    seeds = list(takewhile(lambda seed: folder(out, "dino-star", seed).exists(), count()))
    asked = [(recipe, seed) for recipe in METHODS for seed in seeds]
    kept = [evaluation(folder(out, *name)) for name in asked]
    baselines = [row for row in kept[0]["rows"] if row["role"] != "run"]
    trained = [next(row for row in found["rows"] if row["role"] == "run") for found in kept]
    methods = by_method([*baselines, *trained], asked)
    return dict(
        format=1,
        kind="demo",
        train=data,
        seeds=seeds,
        methods={name: [raw(results) for results in of] for name, of in methods.items()},
        command=command or "wessl demo",
        versions=kept[0]["versions"],
        machine=machine,
    )


def evaluation(run: Path) -> State:
    (path,) = (run / "results").glob("evaluation-*.json")
    found: State = json.loads(path.read_text())
    return found


def raw(results: State) -> State:
    wanted = ("accuracy", "per_draw")
    return {name: {k: results[name][k] for k in wanted if k in results[name]} for name in COLUMNS}


def table(found: State) -> str:
    """As the demo prints it."""
    methods = found["methods"]
    base = methods[METHODS["dino-star"]]
    rows = [[name, *(cell(of, column) for column in COLUMNS)] for name, of in methods.items()]
    rows += [
        [gain_name(name), *(gain(methods[name], base, column) for column in COLUMNS)]
        for name in GAINING
    ]
    return grid(["", *COLUMNS], rows) + "\n"
