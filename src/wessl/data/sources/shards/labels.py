"""The labels of many shards in one numbering: by the names of the classes wherever there are any.

Each `wessl pack` numbers its own classes, so the number 1 of two packs may mean two things. Their
names lie in every sample, and all of them, in order, in the `classes.json` beside the shards.
"""

import json

import numpy as np
from numpy.typing import NDArray

from wessl.data.sources.shards.files import ShardFiles
from wessl.data.sources.shards.scan import Scanned

CLASSES = "classes.json"
Labels = tuple[NDArray[np.int64] | None, list[str] | None, str | None]


def join_labels(parts: list[Scanned], files: ShardFiles) -> Labels:
    """Labels and class names, or why there are none."""
    total, missing = sum(len(p.starts) for p in parts), sum(p.unlabelled for p in parts)
    if missing or not total:
        some = f"no labels: {missing:,} of {total:,} pictures have none"
        return None, None, some if missing < total else None
    tables = _tables(files)
    held = [(p, tables[_folder(files.shards[i])]) for i, p in enumerate(parts) if len(p.starts)]
    numbers = [np.asarray(part.labels) for part, _ in held]
    classes = [_classes_of(part, table) for part, table in held]
    if all(names is None for names in classes):
        return np.concatenate(numbers), None, None
    # Names out of `classes.json` are a pack's too.
    packed = any(part.packed for part, _ in held) or any(
        part.classes is None and names is not None
        for (part, _), names in zip(held, classes, strict=True)
    )
    if packed and None in classes:
        why = "some shards name their classes and others only number them"
        return None, None, f"no labels: {why}; pack those again, or open them apart"
    for i, names in enumerate(classes):
        if names is None:  # words that happen to be numbers, in a shard that has no others
            values, numbers[i] = np.unique(numbers[i], return_inverse=True)
            classes[i] = [str(value) for value in values]
    return *_in_one_table(
        numbers, [c for c in classes if c is not None], list(tables.values())
    ), None


def _in_one_table(
    numbers: list[NDArray[np.int64]], classes: list[list[str]], tables: list[list[str] | None]
) -> tuple[NDArray[np.int64], list[str]]:
    """In the order of `classes.json` where all folders hold the same, else sorted."""
    names = {name for some in classes for name in some}
    agreed = tables[0] if all(table == tables[0] for table in tables) else None
    table = agreed if agreed is not None and names <= set(agreed) else sorted(names)
    place = {name: i for i, name in enumerate(table)}
    found = [
        np.array([place[name] for name in some], np.int64)[labels]
        for labels, some in zip(numbers, classes, strict=True)
    ]
    return np.concatenate(found), table


def _classes_of(part: Scanned, table: list[str] | None) -> list[str] | None:
    if part.classes is not None or table is None:
        return part.classes
    return table if np.asarray(part.labels).max(initial=0) < len(table) else None


def _folder(shard: str) -> str:
    return shard.rpartition("/")[0]


def _tables(files: ShardFiles) -> dict[str, list[str] | None]:
    """The `classes.json` of each folder that shards lie in."""
    first = {_folder(shard): i for i, shard in reversed(list(enumerate(files.shards)))}
    return {folder: _table(files, shard) for folder, shard in first.items()}


def _table(files: ShardFiles, shard: int) -> list[str] | None:
    try:
        names = json.loads(files.read_beside(shard, CLASSES))
    except Exception:  # every file system has its own way to say that there are none
        return None
    fits = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return names if fits else None
