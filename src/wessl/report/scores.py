"""How good the features are: accuracies with their intervals, and differences between runs."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from wessl.report.charts import look
from wessl.report.collect import collect, transferred
from wessl.report.columns import APART, MEANING, OPTIMISTIC, head_row
from wessl.report.confusion import per_class
from wessl.report.differences import differences
from wessl.report.intervals import ends_of, interval
from wessl.report.markup import Markup, absent, finite, join, number, tag
from wessl.report.measured import Measured, Row
from wessl.report.seeds import methods, over_seeds
from wessl.report.story import State, Story, part
from wessl.report.words import count

MEANT = (
    "Accuracy in %; beneath each, its 95 % interval over other labels and other test pictures; "
    "where all labels are used, as in k-NN, over test pictures alone. Bold is what is surely the "
    "best of its column."
)
ELSEWHERE = (
    "Logistic regression on all labels of each dataset, in %; beneath each, its 95 % interval over "
    "other test pictures."
)


def accuracy(stories: Sequence[Story]) -> Markup:
    measured = collect(stories)
    without = [s for s in stories if not s.of_kind("evaluation")]
    parts: list[Any] = []
    for at, one in enumerate(measured):
        repeated = methods(one, stories)
        singly = join([tag("p", MEANT) if at == 0 else None, table(one), differences(one)])
        if repeated:
            title = tag("summary", "Run by run")
            singly = tag("details", title, singly, class_="part")
        parts += [places(one), remarks(one), over_seeds(one, repeated), singly, protocols(one)]
    told = {note for one in measured for note in one.notes}
    for one in transferred(stories):
        fresh = replace(one, notes=[note for note in one.notes if note not in told])
        parts += [tag("h3", "On other datasets"), tag("p", elsewhere(one)), remarks(fresh)]
        parts += [table(one), differences(one), protocols(one)]
    parts.append(per_class(stories))
    if without:
        words = "Not measured yet." if len(without) == len(stories) else "Not all were measured."
        more = " This command adds few-shot, k-NN and linear accuracy, from labelled pictures in "
        calls = (
            f"wessl evaluate {shlex.quote(str(s.path))} --train DIR --test DIR" for s in without
        )
        parts.append(absent(f"{words}{more}one folder a class:", calls))
    return join(parts)


def places(measured: Measured) -> Markup:
    (train, labels), (test, tested) = map(_place, (measured.train, measured.test))
    seen_at = finite(measured.test.get("seen_at"))
    size = f"; encoders were shown {seen_at:.0f} pixels" if seen_at else ""
    return tag("p", "Labels from ", train, f" ({labels}), tested on ", test, f" ({tested}){size}.")


def elsewhere(measured: Measured) -> str:
    metrics = {c: _protocol(measured, c).get("metric") for c in measured.columns}
    means = [column for column, metric in metrics.items() if metric == "mean per class"]
    return ELSEWHERE + f" For {', '.join(means)} accuracy is the mean over classes." * bool(means)


def remarks(measured: Measured) -> Markup | None:
    """What a reader must know before believing the numbers."""
    said = [*measured.notes, *left_out(measured)]
    said += [MEANING] if any(OPTIMISTIC in column for column in measured.columns) else []
    said += [APART] if measured.differ else []
    return tag("ul", [tag("li", words) for words in said], class_="remarks") if said else None


def left_out(measured: Measured) -> Iterator[str]:
    """Of each dataset, how many pictures of which part."""
    for column in measured.columns:
        unreadable = part(_protocol(measured, column), "unreadable")
        some = [f"{number(n, 0)} of {name}" for name, n in unreadable.items() if finite(n)]
        if some:
            yield f"{column}: unreadable pictures are left out, {' and '.join(some)}."


def _protocol(measured: Measured, column: str) -> State:
    return next((p for row in measured.rows if (p := part(row.of(column), "protocol"))), {})


def _place(side: State) -> tuple[Markup, str]:
    pictures = count(side.get("pictures"), "picture")
    classes = count(side.get("classes"), "class", "classes")
    return tag("code", str(side.get("location", "?"))), f"{pictures}, {classes}"


def table(measured: Measured) -> Markup:
    scales = {column: Scale.of(measured, column) for column in measured.columns}
    body = [
        tag(
            "tr",
            tag("th", row.name, scope="row"),
            [_cell(row, column, scales[column]) for column in measured.columns],
            class_=None if row.role == "run" else "other",
        )
        for row in measured.rows
    ]
    head = head_row(measured.columns, bool(measured.too_good))
    inside = tag("table", tag("thead", head), tag("tbody", body), class_="numbers scores")
    return tag("div", inside, class_="scroll")


@dataclass(frozen=True)
class Scale:
    """From the lowest end of a column's intervals to the highest, and the best row, if sure."""

    low: float
    high: float
    best: Row | None

    @classmethod
    def of(cls, measured: Measured, column: str) -> "Scale":
        values = [a for row in measured.rows if (a := row.accuracy(column)) is not None]
        ends = [end for row in measured.rows for end in ends_of(row.of(column)) or ()]
        all_of_it = [*values, *ends] or [0.0]
        return cls(min(all_of_it), max(all_of_it), measured.surely_best(column))

    def place(self, value: float, width: float) -> str:
        return f"{4 + (width - 8) * (value - self.low) / ((self.high - self.low) or 1.0):.1f}"


def _cell(row: Row, column: str, scale: Scale) -> Markup:
    value, result = row.accuracy(column), row.of(column)
    if value is None:
        return tag("td", number(None))
    words, ends = number(100 * value, 1), ends_of(result)
    inner = tag("b", words) if row is scale.best else words
    return tag("td", inner, interval(result), whisker(value, ends, scale, row) if ends else None)


def whisker(value: float, ends: tuple[float, float], scale: Scale, row: Row) -> Markup:
    """The interval drawn on the scale of its column."""
    width = 84.0
    low, high = (scale.place(end, width) for end in ends)
    return tag(
        "svg",
        tag("line", x1=low, x2=high, y1=4, y2=4),
        tag("circle", cx=scale.place(value, width), cy=4, r=2.6),
        viewBox=f"0 0 {width:g} 8",
        class_="whisker" if row.colour is None else f"whisker {look(row.colour)}",
        aria_hidden="true",
    )


def protocols(measured: Measured) -> Markup | None:
    """How each column was measured."""
    items = []
    for column in measured.columns:
        found = _protocol(measured, column).items()
        told = [f"{key.replace('_', ' ')}: {_plain(v)}" for key, v in found]
        words = "; ".join([*told, *_taken(measured, column)] if told else [])
        items += [(tag("dt", column), tag("dd", words))] if words else []
    if not items:
        return None
    return tag("details", tag("summary", "How each was measured"), tag("dl", items, class_="runs"),
               class_="part")  # fmt: skip


def _taken(measured: Measured, column: str) -> Iterator[str]:
    """What was chosen for whom, where a protocol leaves a choice."""
    names: dict[str, list[str]] = {}
    for row in measured.rows:
        if choice := _choice(row.of(column)):
            names.setdefault(choice, []).append(row.name)
    if names:
        yield "taken: " + ", ".join(f"{choice} ({', '.join(of)})" for choice, of in names.items())


def _choice(result: State) -> str:
    if (k := finite(result.get("k"))) is not None:
        return f"k = {k:g}"
    best = part(result, "chosen")
    rate = finite(best.get("lr"))
    return "" if rate is None else f"{best.get('reading', '?')} at base learning rate {rate:g}"


def _plain(value: Any) -> str:
    if not isinstance(value, list):
        return str(value)
    if len(value) > 4:
        return f"{value[0]} … {value[-1]} ({len(value)} values)"
    return ", ".join(map(str, value))
