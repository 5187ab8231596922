"""Evaluations of several runs brought together, so that only like is compared with like."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from wessl.report.columns import Columns
from wessl.report.markup import finite
from wessl.report.measured import STUDENT, Measured, Row
from wessl.report.repeats import groups
from wessl.report.story import State, Story, held_out, known, listed, part, resized


def collect(stories: Sequence[Story]) -> list[Measured]:
    """Evaluations grouped by their pictures: only such numbers may stand in one table.

    Those come first that knew no test pictures, of these the ones of most runs, of equals those
    with test pictures of their own, then of the usual size, and then the first run's newest. Where
    runs were shown pictures of another size, those whose own it is stand beside them too.
    """
    alike: dict[tuple[str, float | None], list[tuple[int, State]]] = {}
    for i, story in enumerate(stories):
        for result in story.of_kind("evaluation"):
            alike.setdefault(_seen(result), []).append((i, result))
    for (pictures, size), found in alike.items():
        own = [one for one in alike.get((pictures, None), []) if _own_size(stories[one[0]]) == size]
        found += own if size is not None else []

    def order(found: list[tuple[int, State]]) -> tuple[bool, int, bool, bool]:
        first = found[0][1]
        many = len({i for i, _ in found})
        return known(first) > 0, -many, held_out(first), resized(first)

    return [_measured(results, stories) for results in sorted(alike.values(), key=order)]


def _seen(result: State) -> tuple[str, float | None]:
    """Which pictures, and how large they were shown, where that was not an encoder's own size."""
    places = [part(result, side) for side in ("train", "test")]
    known_by = [place.get("digest") or place.get("location") for place in places]
    return repr(known_by), finite(places[1].get("seen_at"))


def _own_size(story: Story) -> float | None:
    return finite(part(story.config, "encoder").get("image_size"))


def _measured(results: Sequence[tuple[int, State]], stories: Sequence[Story]) -> Measured:
    called = Columns(part(row, "results") for _, one in results for row in listed(one, "rows"))
    columns: dict[str, dict[str, None]] = {}
    rows: list[Row] = []
    gains, notes = [], []
    for i, result in results:
        named = result.get("columns")
        given = [_row(row, i, stories) for row in listed(result, "rows")]
        for name in map(str, named) if isinstance(named, list) else ():
            variants = [called.of(name, row.of(name)) for row in given if name in row.results]
            columns.setdefault(name, {}).update(dict.fromkeys(variants or [name]))
        for row in given:
            _add(rows, replace(row, results=called.renamed(row.results)), stories[i])
        own = next((row for row in given if row.role == "run"), Row("", "run", {}))
        gains += [(i, _gains(one, own, called)) for one in listed(result, "differences")]
        notes += _texts(result.get("notes"))
    first = results[0][1]
    sides = part(first, "train"), part(first, "test")
    beside = [column for variants in columns.values() for column in variants]
    kept = list(dict.fromkeys(notes))
    return Measured(*sides, beside, _distinct(rows), gains, kept, called.differ)


def _gains(kept: State, base: Row, called: Columns) -> State:
    """A gain was measured as the number of the run that keeps it was, and on the same network."""
    found = {called.of(n, base.of(n)): gain for n, gain in part(kept, "results").items()}
    return kept | dict(results=found, student=base.student)


def _texts(values: Any) -> list[str]:
    return [one for one in values if isinstance(one, str)] if isinstance(values, list) else []


def _add(rows: list[Row], row: Row, story: Story) -> None:
    """Raw pixels are the same for every run: one line, though each knows other columns of it."""
    if row.run is not None:
        rows.append(row)
        return
    for i, old in enumerate(rows):
        if old.run is None and old.name == row.name and _agree(old, row):
            rows[i] = replace(old, results=row.results | old.results)
            return
    if any(row.name == old.name for old in rows):
        row = replace(row, name=f"{row.name} ({story.name})")
    rows.append(row)


def _agree(a: Row, b: Row) -> bool:
    both = a.results.keys() & b.results.keys()
    facts = ("accuracy", "protocol")
    return a.weights == b.weights and all(
        [a.of(column).get(fact) for fact in facts] == [b.of(column).get(fact) for fact in facts]
        for column in both
    )


def _distinct(rows: list[Row]) -> list[Row]:
    """Runs first, each one's teacher before its student; other weights that are a run's own would
    say everything twice."""
    runs = sorted((row for row in rows if row.role == "run"), key=lambda r: (r.run or 0, r.student))
    known = {row.weights for row in runs} - {None}
    return runs + [row for row in rows if row.role != "run" and row.weights not in known]


def _row(given: State, i: int, stories: Sequence[Story]) -> Row:
    name, role = str(given.get("name", "?")), str(given.get("role"))
    weights = _text(given.get("weights"))
    if role != "run":
        return Row(name, role, part(given, "results"), weights=weights)
    student = given.get("network") == "student"
    name = stories[i].name + STUDENT * student if len(stories) > 1 else name
    return Row(name, role, part(given, "results"), i, groups(stories)[i], weights, student)


def _text(weights: Any) -> str | None:
    return weights if isinstance(weights, str) else None


def transferred(stories: Sequence[Story]) -> list[Measured]:
    """Accuracies on other datasets, a column each, in at most one table."""
    every = [result for story in stories for result in story.of_kind("transfer")]
    sides = (side for one in every for side in (one, *listed(one, "others")))
    called = Columns(part(side, "results") for side in sides)
    rows: list[Row] = []
    gains, notes = [], list[str]()
    for i, (story, colour) in enumerate(zip(stories, groups(stories), strict=True)):
        for result in story.of_kind("transfer"):
            weights, student = _text(result.get("weights")), result.get("network") == "student"
            name = story.name + STUDENT * student
            own = Row(name, "run", part(result, "results"), i, colour, weights, student)
            rows.append(replace(own, results=called.renamed(own.results)))
            gains += [(i, _gains(one, own, called)) for one in listed(result, "differences")]
            notes += _texts(result.get("notes"))
            for other in listed(result, "others"):
                row = _row(other, i, stories)
                _add(rows, replace(row, results=called.renamed(row.results)), story)
    columns = list(dict.fromkeys(column for row in rows for column in row.results))
    kept = list(dict.fromkeys(notes))
    found = Measured({}, {}, columns, _distinct(rows), gains, kept, called.differ)
    return [found] if columns else []
