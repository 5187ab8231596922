"""What an evaluation leaves in run folders: each run's row, beside what it is compared with."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from wessl.data.cache.cache import PictureCache
from wessl.errors import Failure
from wessl.evaluate.suite import Row
from wessl.report.measured import STUDENT
from wessl.run import Run
from wessl.verbs.evaluating.again import MADE

Record = dict[str, Any]


def describe(
    data: str, cache: PictureCache, labels: torch.Tensor, digest: str, seen_at: int | None
) -> Record:
    """Where pictures and labels came from, and a digest of both that changes with any of them; the
    size encoders were shown, if it is another than an encoder's own."""
    found = dict(
        location=data,
        pictures=len(labels),
        classes=len(labels.unique()),
        unreadable=[name for name, _ in cache.skipped],
        digest=digest,
    )
    return found if seen_at is None else found | dict(seen_at=seen_at)


def plain(row: Row, network: str) -> Record:
    """A row for JSON."""
    return dict(
        name=row.name,
        role=row.role,
        network=network if row.role == "run" else None,
        weights=row.weights,
        results=row.results,
    )


def save(path: str, own: Record, record: Record) -> None:
    """A run keeps its own row, the baselines and other weights, and the gains of all on it, of
    other runs too; other protocols of the same weights on the same pictures stay."""
    name = _called(path, own["network"])
    others = [row for row in record["rows"] if row["role"] != "run"]
    gains = [one | dict(base=name) for one in record["differences"]]
    mine = record | dict(rows=[own | dict(name=name), *others], differences=gains)
    about = [record[side]["digest"] for side in ("train", "test")] + [own["network"]]
    if seen_at := record["test"].get("seen_at"):
        about.append(str(seen_at))
    key = hashlib.sha256(" ".join(about).encode()).hexdigest()[:8]
    keep(path, f"evaluation-{key}", lambda before: _merged(mine, before))


def _called(path: str, network: str) -> str:
    """A run in its own folder; beside other runs its name may have been a longer one."""
    return Path(path).absolute().name + STUDENT * (network == "student")


def save_transfer(
    path: str,
    network: str,
    weights: str | None,
    results: Record,
    others: list[Record],
    about: Record,
    differences: list[Record],
) -> None:
    """Other datasets of the same weights stay, those of `others` and the gains on it too; the
    student has a file beside the teacher's."""
    mine = [one | dict(base=_called(path, network)) for one in differences]

    def merged(before: Record) -> Record:
        same = before.get("weights") == weights
        known = before.get("results", {}) if same else {}
        changed = {name for name, found in results.items() if not _same(known.get(name), found)}
        rows = {(row["name"], row["weights"]): row for row in before.get("others", ()) if same}
        for row in others:
            key = row["name"], row["weights"]
            stay = rows.get(key, row)["results"]
            rows[key] = row | dict(results=stay | row["results"])
        gains = {(one["name"], one["weights"]): one for one in mine}
        for one in before.get("differences", ()) if same else ():
            key = one["name"], one["weights"]
            stay = {name: gain for name, gain in one["results"].items() if name not in changed}
            fresh = gains.get(key, one | dict(results={}))
            if stay or fresh["results"]:
                gains[key] = fresh | dict(results=stay | fresh["results"])
        return about | dict(
            kind="transfer",
            network=network,
            weights=weights,
            results=known | results,
            others=list(rows.values()),
            differences=list(gains.values()),
        )

    keep(path, "transfer-student" if network == "student" else "transfer", merged)


def keep(path: str, name: str, merged: Callable[[Record], Record]) -> None:
    """Writes `merged(what was there)` into a run's results; weights in a file have none."""
    if not Path(path).is_dir():
        return
    run = Run(path)
    try:
        before = json.loads((run.results / f"{name}.json").read_text())
    except (OSError, ValueError):  # absent or damaged
        before = {}
    try:
        run.save_result(name, merged(before if isinstance(before, dict) else {}))
    except OSError as error:
        raise Failure(f"the results above are not kept: {error}") from error


def _merged(record: Record, before: Record) -> Record:
    """Keeps what an earlier evaluation found by other protocols for the same weights."""
    old = {row["name"]: row for row in before.get("rows", ())}
    own = record["rows"][0]
    if old.get(own["name"], {}).get("weights") != own["weights"]:
        return record
    rows = [_joined(row, old.pop(row["name"], {}), own["results"]) for row in record["rows"]]
    table = rows[0]["results"]
    rows += [_joined(row | dict(results={}), row, own["results"]) for row in old.values()]
    rows = [row for row in rows if row["results"]]
    there = dict.fromkeys([*before.get("columns", ()), *record["columns"]])
    columns = [name for name in there if any(name in row["results"] for row in rows)]
    merged = record | dict(rows=rows, columns=columns)
    merged["differences"] = _differences(record, before, rows)
    was, now = before.get("per_class"), record["per_class"]
    if not was or was["protocol"] not in table:
        return merged
    if now is None or _labels(was, table) > _labels(now, table):
        merged["per_class"] = was
    return merged


def _labels(per_class: Record, results: Record) -> int:
    """How many a few-shot protocol has; 0 for one of all labels, which any of few goes before."""
    if not per_class.get("few_labels"):
        return 0
    return max(results[per_class["protocol"]]["protocol"].get("labelled_pictures", [1]))


def _joined(row: Record, old: Record, fresh: Record) -> Record:
    """A row with those old results that may stand beside the fresh ones of the run's own row."""
    if not old or old["weights"] != row["weights"]:
        return row
    kept = {
        name: result
        for name, result in old["results"].items()
        if name not in fresh or _protocol(result) == _protocol(fresh[name])
    }
    return row | dict(results=kept | row["results"])


def _protocol(result: Record) -> Record:
    """But for which features were tried: a transformer has some that raw pixels have not."""
    return {name: value for name, value in result["protocol"].items() if name != "readings"}


def _differences(record: Record, before: Record, rows: list[Record]) -> list[Record]:
    """Earlier ones stay while both numbers they are of do.

    Another run's number lies in its own folder: while its weights are the same, a reader sees by
    the difference itself whether it is still of that number.
    """
    was = {row["name"]: row["results"] for row in before["rows"]}
    now = {row["name"]: row["results"] for row in rows}
    found = {(one["name"], one["base"]): one for one in record["differences"]}
    for one in before.get("differences", ()):
        name, base = one["name"], one["base"]
        fresh = found.get((name, base), one | dict(results={}))
        if fresh.get("weights") != one.get("weights", fresh.get("weights")):
            continue
        here = [base] if one.get("role") == "run" else [name, base]
        kept = {
            column: gain
            for column, gain in one["results"].items()
            if all(_same(was.get(of, {}).get(column), now.get(of, {}).get(column)) for of in here)
        }
        if kept or fresh["results"]:
            found[name, base] = fresh | dict(results=kept | fresh["results"])
    return list(found.values())


def _same(one: Record | None, other: Record | None) -> bool:
    """Whether they are one number, whenever and by whichever command it was measured."""
    if one is None or other is None:
        return False
    numbers = [{k: v for k, v in each.items() if k not in MADE} for each in (one, other)]
    return numbers[0] == numbers[1]
