"""What the heads learnt: how alike they are, and the pictures each is surest of."""

import shlex
from collections.abc import Sequence
from typing import Any

from wessl.report.charts import Series, line_chart
from wessl.report.confusion import bar
from wessl.report.curves import legend
from wessl.report.markup import Markup, absent, finite, join, number, percent, tag
from wessl.report.matrices import matrix
from wessl.report.repeats import groups
from wessl.report.story import PICTURED, State, Story, listed, numbers, part
from wessl.report.surest import disagreed, surest


def heads(stories: Sequence[Story]) -> Markup:
    coloured = zip(groups(stories), stories, strict=True)
    told = [(c, s, found[-1]) for c, s in coloured if (found := s.of_kind("diversity"))]
    several = len(stories) > 1
    parts: list[Any] = [decay(told, stories)] if several else []
    for at, (_, story, of_run) in enumerate(told):
        inside = [
            tag("p", str(of_run.get("summary", ""))),
            _of_run(of_run) if at < PICTURED else None,
        ]
        if several:
            title = tag("summary", f"Heads of {story.name}")
            parts.append(tag("details", title, inside, open=at == 0, class_="part"))
        else:
            parts += inside
    alone = [s for s in stories if several and s.group("heads").get("count") == 1]
    if missing := [s for s in stories if not s.of_kind("diversity") and s not in alone]:
        words = "Not all were compared yet:" if told else "The heads were not compared yet:"
        parts.append(absent(words, map(_call, missing)))
    return join(parts)


def _call(story: Story) -> str:
    data = str(part(story.header, "data").get("location", "DATA"))
    return f"wessl diversity {shlex.quote(str(story.path))} {shlex.quote(data)}"


def decay(told: Sequence[tuple[int, Story, State]], stories: Sequence[Story]) -> Markup | None:
    """The runs' decay curves side by side."""
    charts = [
        line_chart(
            f"Similarity {words}",
            [Series(s.name, _curve(part(found, "curves"), key), c) for c, s, found in told],
            x_name="share of codes",
            reach=(0.0, 1.0),
            note="of matched codes, most alike first",
        )
        for key, words in (("after", "after alignment"), ("before", "before alignment"))
    ]
    if not any(charts):
        return None
    return join([legend(stories), tag("div", charts, class_="charts")])


def _curve(curves: State, key: str) -> list[tuple[float, float | None]]:
    xs, ys = curves.get("share"), curves.get(key)
    if not isinstance(xs, list) or not isinstance(ys, list):
        return []
    points = [(finite(x), finite(y)) for x, y in zip(xs, ys, strict=False)]
    return [(x, y) for x, y in points if x is not None]


def _of_run(found: State) -> list[Any]:
    curves = part(found, "curves")
    own = line_chart(
        "Decay of similarity",
        [
            Series("after alignment", _curve(curves, "after"), 0),
            Series("before alignment", _curve(curves, "before"), 1),
        ],
        x_name="share of codes",
        reach=(0.0, 1.0),
        note="of matched codes, most alike first",
        legend=True,
    )
    pairs = matrix(found.get("scores"), "Diversity of each pair", "head #", "head #",
                   "0 copies, 1 nothing in common", numbered=True)  # fmt: skip
    information = matrix(
        found.get("adjusted_information"),
        "Information shared",
        "head #",
        "head #",
        "0 chance, 1 the same groups",
        numbered=True,
    )
    compared = found.get("score") is not None
    shown = listed(found, "shown")
    return [
        tag("div", own, pairs, information, class_="charts") if compared else None,
        _matrices(shown) if shown else None,
        _table(found) if listed(found, "per_head") else None,
        surest(found),
        disagreed(found),
    ]


def _matrices(shown: Sequence[State]) -> Markup:
    pairs = []
    for pair in shown:
        first, second = (f"{n:.0f}" for n in ((numbers(pair.get("heads")) or []) + [0, 0])[:2])
        names = (f"head {first}, place #", f"head {second}, place #")
        scores = (number(pair.get(key)) for key in ("score_before", "score"))
        keys = (("matrix_before", "By number"), ("matrix_after", "Aligned"))
        figures = [
            matrix(pair.get(key), title, *names, note=f"diversity {score}")
            for (key, title), score in zip(keys, scores, strict=True)
        ]
        role = str(pair.get("role", "a pair")).capitalize()
        title = tag("h4", f"{role}: heads {first} and {second}")
        pairs.append(tag("div", title, tag("div", figures, class_="pair")))
    note = (
        "Dark cells are codes that gather the same pictures. By number, a code stands beside the "
        "code of the same number; aligned, beside its best partner, the most alike first."
    )
    return join(
        [
            tag("h3", "Similarity of codes between two heads"),
            tag("p", note, class_="note"),
            tag("div", pairs, class_="pairs"),
        ]
    )


def _table(found: State) -> Markup:
    most = (
        max((finite(h.get("most_confident")) or 0 for h in listed(found, "per_head")), default=0)
        or 1
    )
    rows = []
    for i, head in enumerate(listed(found, "per_head")):
        share = finite(head.get("most_confident"))
        cells = (
            number(head.get("score")),
            f"{number(head.get('codes_used'), 0)} of {number(found.get('codes'), 0)}",
            number(head.get("effective_codes"), 0),
            number(head.get("entropy")),
            percent(share),
        )
        rows.append(
            tag(
                "tr",
                tag("th", f"head {i}", scope="row"),
                [tag("td", cell) for cell in cells],
                tag("td", bar((share or 0) / most), class_="bar"),
            )
        )
    columns = (
        "",
        "diversity",
        "codes used",
        "effective codes",
        "entropy, nats",
        "surest of all",
        "",
    )
    head_row = tag("tr", [tag("th", name, scope="col") for name in columns])
    table = tag("table", tag("thead", head_row), tag("tbody", rows), class_="numbers")
    note = "Surest of all: the share of pictures on which this head has the lowest entropy."
    title = tag("summary", "Head by head: codes in use, entropy, how often the surest")
    inside = tag("div", table, class_="scroll")
    return tag("details", title, inside, tag("p", note, class_="note"), class_="part")
