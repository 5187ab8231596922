"""Two tables of one study, of other seeds or other cells, as one."""

import sys
from typing import Any

from wessl.study.intervals import paired, summary

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
    names = sorted(now, key=list(now).index) + [name for name in before if name not in now]
    rows = {name: join_rows(before.get(name), now.get(name)) for name in names}
    for row in rows.values():
        for column in new["columns"]:
            row["results"][column["name"]] |= sum_up(row, rows.get(row["base"]), column)
    seeds = sorted({*old["seeds"], *new["seeds"]})
    best = [again(entry, list(rows.values())) for entry in new["best"]]
    return new | dict(rows=list(rows.values()), seeds=seeds, best=best)


def join_rows(old: State | None, new: State | None) -> State:
    if old is None or new is None:
        return dict(old or new or {})
    results = {
        name: result | dict(seeds=old["results"][name]["seeds"] | result["seeds"])
        for name, result in new["results"].items()
    }
    both = {name: old[name] | new[name] for name in ("failures", "curves")}
    return new | both | dict(results=results)


def sum_up(row: State, base: State | None, column: State) -> State:
    own, reference = (by_seed(each, column["name"]) for each in (row, base))
    if not own:
        return dict(mean=None, sd=None, n=0, seeds={}, difference=None)
    return summary(own) | dict(difference=paired(own, reference, column["relative"]))


def by_seed(row: State | None, column: str) -> dict[int, float]:
    found = {} if row is None else row["results"][column]["seeds"]
    return {int(seed): value for seed, value in found.items()}


def again(best: State, rows: list[State]) -> State:
    """The best cell of its series, which other seeds may have changed."""
    lead = best["chosen_by"]
    mine = [row for row in rows if row["series"] == best["series"]]
    mine = [row for row in mine if row["results"][lead]["mean"] is not None]
    found = max(mine, key=lambda row: row["results"][lead]["mean"], default=None)
    return best | dict(name=found and found["name"])
