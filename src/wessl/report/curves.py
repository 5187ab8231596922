"""The training's curves, all runs in each, and where they ended."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from wessl.report.charts import Series, line_chart, named
from wessl.report.markup import Markup, finite, join, number, tag
from wessl.report.repeats import groups, method_names
from wessl.report.scales import Point
from wessl.report.story import State, Story
from wessl.report.words import time_words

Read = Callable[[State], float | None]


@dataclass(frozen=True)
class Curve:
    title: str
    read: Read
    note: str
    unit: str = ""
    reach: tuple[float, ...] = ()
    span: float = 0.0
    """What the axis shows at least, so that noise does not look like news."""
    probes: bool = False


def of(name: str, scale: float = 1.0) -> Read:
    def read(row: State) -> float | None:
        value = finite(row.get(name))
        return None if value is None else scale * value

    return read


def knn(row: State) -> float | None:
    value = finite(row["probe"].get("knn"))
    return None if value is None else 100 * value


CURVES = (
    Curve("Loss", of("loss"), "what training minimises, in nats"),
    Curve("Teacher entropy", of("teacher_entropy"), "at ln c targets say nothing"),
    Curve("k-NN accuracy", knn, "of a fixed fifth of the pictures", " %", span=10.0, probes=True),
    Curve("Effective rank", of("rank"), "directions the features use", reach=(0.0,)),
    Curve("Speed", of("images_per_second"), "pictures a second", reach=(0.0,)),
    Curve("Waiting for data", of("data_wait", 100), "share of the time", " %", (0.0, 5.0)),
)  # fmt: skip


def points(story: Story, curve: Curve) -> list[Point]:
    rows = story.probes if curve.probes else story.rows
    known = [(finite(row.get("epoch")), curve.read(row)) for row in rows]
    return [(x, y) for x, y in known if x is not None]


def reference(curve: Curve, stories: Sequence[Story]) -> tuple[float, str] | None:
    """ln c, where all the runs have as many codes."""
    if curve.title != "Teacher entropy":
        return None
    codes = {finite(story.rows[-1].get("codes")) for story in stories if story.rows}
    known = codes.pop() if len(codes) == 1 else None
    return (math.log(known), f"ln c = {math.log(known):.2f}") if known and known > 1 else None


def legend(stories: Sequence[Story]) -> Markup | None:
    """Seeds of one method share its colour and its name."""
    if len(stories) < 2:
        return None
    return named([(name, colour) for colour, name in method_names(stories).items()])


def training(stories: Sequence[Story]) -> Markup:
    charts, colours = [], groups(stories)
    for curve in CURVES:
        series = [
            Series(s.name, points(s, curve), c) for s, c in zip(stories, colours, strict=True)
        ]
        note = curve.note
        if curve.title == "Loss" and len({loss_of(s) for s in stories}) > 1:
            note = "not comparable between losses of different kinds"
        charts.append(
            line_chart(
                curve.title,
                series,
                curve.unit,
                reach=(*curve.reach, *spread(series, curve.span)),
                reference=reference(curve, stories),
                note=note,
            )
        )
    drawn = [chart for chart in charts if chart is not None]
    if not drawn:
        return tag("p", "No metrics yet: the first line is written after some steps.")
    absent = None
    if not any(story.probes for story in stories):
        absent = tag(
            "p",
            "No k-NN over time: it needs labelled pictures. Train with ",
            tag("code", "--probe DIR"),
            ", a folder with one folder a class.",
            class_="absent",
        )
    return join([legend(stories), tag("div", drawn, class_="charts"), absent, endings(stories)])


def spread(series: Sequence[Series], span: float) -> tuple[float, ...]:
    """Two levels ``span`` apart around the percentages drawn, not above 100."""
    known = [y for s in series for _, y in s.points if y is not None]
    if not known or max(known) - min(known) >= span:
        return ()
    high = min(100.0, (max(known) + min(known) + span) / 2)
    return (high - span, high)


def loss_of(story: Story) -> str:
    """Losses of the same weighting and number of codes can be compared."""
    loss, heads = story.group("loss"), story.group("heads")
    return repr((loss.get("weighting") if heads.get("count") != 1 else None, heads.get("codes")))


ENDINGS = ("epochs", "loss", "entropy / ln c", "codes in use", "heads that count",
           "pictures / s", "time")  # fmt: skip


def endings(stories: Sequence[Story]) -> Markup | None:
    """The last row of every run: a table for several, a list for one."""
    told = [story for story in stories if story.rows]
    if not told:
        return None
    caption = "Where training ended" if all(s.finished for s in told) else "Where training is"
    if len(stories) == 1:
        items = [
            tag("div", tag("dt", name), tag("dd", words))
            for name, words in zip(ENDINGS, _ending(told[0]), strict=True)
        ]
        return join([tag("h3", caption), tag("dl", items, class_="facts")])
    rows = [
        tag("tr", tag("th", s.name, scope="row"), [tag("td", words) for words in _ending(s)])
        for s in told
    ]
    head = tag("tr", [tag("th", name, scope="col") for name in ("", *ENDINGS)])
    parts = (tag("caption", caption), tag("thead", head), tag("tbody", rows))
    return tag("div", tag("table", parts, class_="numbers"), class_="scroll")


def _ending(story: Story) -> tuple[str, ...]:
    last = story.rows[-1]
    codes, used = finite(last.get("codes")), _mean(last.get("codes_used"))
    entropy = finite(last.get("teacher_entropy"))
    share = None if entropy is None or not codes or codes < 2 else entropy / math.log(codes)
    shares = last.get("head_shares")
    m = len(shares) if isinstance(shares, list) else None
    return (
        number(last.get("epoch"), 1),
        number(last.get("loss"), 3),
        number(share, 2),
        f"{number(used, 0)} of {number(codes, 0)}",
        "one head" if m == 1 else f"{number(last.get('heads_effective'), 1)} of {m or '?'}",
        number(last.get("images_per_second"), 0),
        time_words(story.seconds),
    )


def _mean(values: Any) -> float | None:
    known = [v for v in map(finite, values) if v is not None] if isinstance(values, list) else []
    return sum(known) / len(known) if known else None
