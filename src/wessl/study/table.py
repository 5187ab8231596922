"""A study's table: what its run folders hold, summed up over seeds, beside the paper's numbers."""

import json
from collections.abc import Sequence
from typing import Any

from wessl._version import versions
from wessl.settings import differences, full_name, to_dict
from wessl.study.asked import Asked, Item, Planned
from wessl.study.cell import Study
from wessl.study.columns import Column
from wessl.study.intervals import Seeds, paired, summary
from wessl.study.paper import Number, Row
from wessl.study.record import read_failure
from wessl.study.text import has_papers_numbers

State = dict[str, Any]
Values = dict[str, dict[str, dict[int, float]]]
"""Cell, column, seed."""
OTHER_METHODS = {"heads.share", "loss.weighting", "loss.target", "optim.freeze_codes_epochs"}
"""Settings with which a study's cells are no longer what the paper has numbers of."""


def build(planned: Planned) -> State:
    asked, study = planned.asked, planned.asked.study
    values: Values = {item.cell.name: read_values(planned, item) for item in planned.items}
    by_name = {item.cell.name: item for item in planned.items}
    rows = [make_row(planned, item, by_name, values) for item in planned.items]
    return dict(
        format=1,
        kind="study",
        study=study.name,
        line=study.line,
        axis=None if study.axis is None else dict(label=study.axis.label, log=study.axis.log),
        measures=study.kind,
        size=asked.size.name,
        otherwise=otherwise(planned.asked),
        train=asked.data.train,
        test=asked.data.test,
        pictures=planned.facts.pictures,
        device=planned.facts.device,
        seeds=list(asked.seeds),
        draws=planned.settings.draws,
        paper=study.setting,
        paper_spread=study.spread,
        notes=notes(planned, rows),
        columns=[describe(column) for column in planned.columns],
        rows=rows,
        best=[
            best(series, numbers, rows, planned.columns)
            for series, numbers in study.best_of.items()
        ],
        command=asked.command,
        versions=versions("torch"),
    )


def otherwise(asked: Asked) -> list[str]:
    """What the user wants other than the size has it."""
    length = [] if asked.epochs is None else [f"epochs={asked.epochs:g}"]
    return length + [f"{name}={json.dumps(value)}" for name, value in asked.settings.items()]


def notes(planned: Planned, rows: Sequence[State]) -> list[str]:
    first = planned.items[0].config
    numbers = dict(b=first.optim.batch_size, c=first.heads.codes)
    return [words.format(**numbers) for words in applying(planned.asked.study, rows)]


def applying(study: Study, rows: Sequence[State]) -> list[str]:
    """Words of the notes that say something about these rows."""
    names = {part for row in rows for part in (row["name"], *row["name"].split(", "))}
    has_paper = has_papers_numbers(dict(rows=rows, best=study.best_of))
    return [
        note.words
        for note in study.notes
        if (not note.cells or names & set(note.cells)) and (has_paper or not note.of_paper)
    ]


def read_values(planned: Planned, item: Item) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {column.name: {} for column in planned.columns}
    for seed in planned.asked.seeds:
        measured = planned.read(planned.folder(item, seed))
        for column in planned.columns:
            if column.name in measured:
                found[column.name][seed] = column.factor * measured[column.name]["value"]
    return found


def describe(column: Column) -> State:
    return dict(
        name=column.name,
        title=column.title,
        unit=column.unit,
        difference_unit=column.difference_unit,
        relative=column.relative,
        digits=column.digits,
        in_paper=column.in_paper,
    )


def make_row(planned: Planned, item: Item, items: dict[str, Item], values: Values) -> State:
    first = base_of(item, items)
    own = values[item.cell.name]
    asked_for = {full_name(name) for name in planned.asked.settings}
    paper = {} if asked_for & OTHER_METHODS else item.cell.paper
    results = {}
    for column in planned.columns:
        reference = values[first.cell.name][column.name] if first else {}
        printed = paper.get(column.in_paper)
        before = first.cell.paper.get(column.in_paper) if first else None
        results[column.name] = make_result(own[column.name], reference, column.relative) | dict(
            paper=number(printed), paper_difference=paper_difference(printed, before, column)
        )
    return dict(
        name=item.name,
        series=item.cell.series,
        x=item.x,
        base=None if first is None else first.name,
        settings=settings(item, first),
        config=to_dict(item.config) if first is None else None,
        epochs=item.config.optim.epochs,
        key=item.key,
        results=results,
        **of_runs(planned, item),
    )


def base_of(item: Item, items: dict[str, Item]) -> Item | None:
    """The cell it is compared with; a base is compared with nothing."""
    name = item.cell.base
    return None if name is None or name == item.cell.name else items[name]


def make_result(own: Seeds, reference: Seeds, relative: bool) -> State:
    if not own:
        return dict(mean=None, sd=None, n=0, seeds={}, difference=None)
    return summary(own) | dict(difference=paired(own, reference, relative))


def number(printed: Number | None) -> State | None:
    return None if printed is None else dict(mean=printed[0], sd=printed[1])


def paper_difference(printed: Number | None, base: Number | None, column: Column) -> float | None:
    if printed is None or base is None:
        return None
    gain = printed[0] - base[0]
    return round(100 * gain / base[0] if column.relative else gain, 2)


def settings(item: Item, first: Item | None) -> State:
    """In what its config differs from the base's."""
    if first is None:
        return {}
    changed = differences(to_dict(first.config), to_dict(item.config))
    return {name: value for name, _, value in changed if name != "recipe" and "views" not in name}


def of_runs(planned: Planned, item: Item) -> State:
    """Its folders, what failed in them, and the curves of its heads where those are compared."""
    found: State = dict(runs={}, failures={}, curves={})
    for seed in planned.asked.seeds:
        folder = planned.folder(item, seed)
        found["runs"][str(seed)] = f"../runs/{folder.name}"
        measured = planned.read(folder)
        done = all(column.name in measured for column in planned.columns)
        if not done and (failure := read_failure(folder)) is not None:
            found["failures"][str(seed)] = failure
        if planned.asked.study.kind == "diversity" and "diversity" in measured:
            found["curves"][str(seed)] = measured["diversity"]["curves"]
    return found


def best(series: str, printed: Row, rows: Sequence[State], columns: Sequence[Column]) -> State:
    """The cell of a series with the best first column, beside the paper's best of the series."""
    lead = columns[0].name
    numbers = {column.name: number(printed.get(column.in_paper)) for column in columns}
    return dict(series=series, name=leader(series, rows, lead), chosen_by=lead, paper=numbers)


def leader(series: str, rows: Sequence[State], lead: str) -> str | None:
    mine = [r for r in rows if r["series"] == series and r["results"][lead]["mean"] is not None]
    best_first = sorted(mine, key=lambda row: row["results"][lead]["mean"], reverse=True)
    return next((row["name"] for row in best_first), None)
