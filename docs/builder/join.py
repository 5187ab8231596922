"""Two tables of one study, of other seeds or other cells, as one."""

import sys
from typing import Any

from wessl.study.sizes import SIZES
from wessl.study.studies import STUDIES
from wessl.study.table import leader, make_result

State = dict[str, Any]
ALIKE = ("study", "size", "otherwise", "train", "pictures", "draws", "columns")
"""What the two must agree in."""


def joined(old: State, new: State) -> State:
    """The new one with all the old one has beside it; of a seed that both have, the new values."""
    for name in ALIKE:
        if name in old and old[name] != new.get(name):  # the first tables had not all of them
            sys.exit(f"--join: {name} was {old[name]!r} and is {new.get(name)!r}")
    before, now = ({row["name"]: row for row in table["rows"]} for table in (old, new))
    for name in before.keys() & now.keys():
        if before[name]["key"] != now[name]["key"]:
            sys.exit(f"--join: {name} was trained with other settings")
    names = in_order(new, [*now, *(name for name in before if name not in now)])
    rows = {name: join_rows(before.get(name), now.get(name)) for name in names}
    for row in rows.values():
        for column in new["columns"]:
            own, base = (by_seed(r, column["name"]) for r in (row, rows.get(row["base"])))
            row["results"][column["name"]] |= make_result(own, base, column["relative"])
    every = list(rows.values())
    best = [b | dict(name=leader(b["series"], every, b["chosen_by"])) for b in new["best"]]
    return new | dict(rows=every, seeds=sorted({*old["seeds"], *new["seeds"]}), best=best)


def in_order(table: State, names: list[str]) -> list[str]:
    """As the study has its cells; those whose names tell a number of the data come last."""
    cells = [cell.name for cell in STUDIES[table["study"]].cells(SIZES[table["size"]])]
    return sorted(names, key=lambda name: cells.index(name) if name in cells else len(cells))


def join_rows(old: State | None, new: State | None) -> State:
    if old is None or new is None:
        return dict(old or new or {})
    results = {
        name: result | dict(seeds=old["results"][name]["seeds"] | result["seeds"])
        for name, result in new["results"].items()
    }
    both = {name: old[name] | new[name] for name in ("failures", "curves")}
    return new | both | dict(results=results)


def by_seed(row: State | None, column: str) -> dict[int, float]:
    found = {} if row is None else row["results"][column]["seeds"]
    return {int(seed): value for seed, value in found.items()}
