"""Line charts as inline SVG, each with the table it was drawn from.

The table is the chart's only data: the page's script reads it to show values under the pointer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from wessl.report.markup import Markup, finite, number, tag
from wessl.report.scales import Axis, Point, axis, axis_to_the_end, digits_for, thin, tick

WIDTH, HEIGHT = 360, 200
LEFT, RIGHT, TOP, BOTTOM = 44, 10, 10, 30
COLOURS = 6
"""How many colours the style has; further lines are dashed in the same colours."""


@dataclass(frozen=True)
class Series:
    """A named line; ``colour`` counts the runs, so that one run looks the same in every chart."""

    name: str
    points: list[Point]
    colour: int = 0


def line_chart(
    title: str,
    series: Sequence[Series],
    unit: str = "",
    x_name: str = "epoch",
    reach: Sequence[float] = (),
    reference: tuple[float, str] | None = None,
    note: str = "",
    legend: bool = False,
) -> Markup | None:
    """A figure, or None when there is nothing to draw.

    ``reference`` is a level with its name, ``reach`` what the upright axis must include.
    """
    drawn = [Series(s.name, thin(s.points), s.colour) for s in series]
    drawn = [s for s in drawn if any(y is not None for _, y in s.points)]
    if not drawn:
        return None
    xs = [x for s in drawn for x, _ in s.points]
    ys = [y for s in drawn for _, y in s.points if y is not None]
    across = axis_to_the_end(xs)
    up = axis([*ys, *reach, *([reference[0]] if reference else [])], 4)
    svg = tag(
        "svg",
        _grid(across, up, x_name),
        _reference(reference, up) if reference else None,
        [_line(s, across, up) for s in drawn],
        tag("g", tag("line", y1=TOP, y2=HEIGHT - BOTTOM), class_="cursor", visibility="hidden"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        tabindex="0",
        aria_label=f"{title}. {_summary(drawn, unit)} Left and right keys read the values.",
    )
    return tag(
        "figure",
        tag("figcaption", tag("b", title), " ", tag("span", note) if note else None),
        named([(s.name, s.colour) for s in drawn]) if legend else None,
        tag("div", svg, tag("div", class_="tip", hidden=True, aria_live="polite"), class_="plot"),
        _table(drawn, across, up, unit, x_name),
        class_="chart",
        data_domain=" ".join(f"{v:.12g}" for v in (across.low, across.high, up.low, up.high)),
        data_box=f"{LEFT} {WIDTH - RIGHT} {HEIGHT - BOTTOM} {TOP}",
    )


def _x(value: float, across: Axis) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * (value - across.low) / (across.high - across.low)


def _y(value: float, up: Axis) -> float:
    share = (value - up.low) / (up.high - up.low)
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share


def _grid(across: Axis, up: Axis, x_name: str) -> Markup:
    right, foot = WIDTH - RIGHT, HEIGHT - BOTTOM
    lines = [
        (
            tag("line", x1=LEFT, x2=right, y1=f"{_y(t, up):.1f}", y2=f"{_y(t, up):.1f}"),
            tag("text", tick(t, up.digits), x=LEFT - 6, y=f"{_y(t, up) + 3.5:.1f}", class_="y"),
        )
        for t in up.ticks
    ]
    marks = [
        tag("text", tick(t, across.digits), x=f"{_x(t, across):.1f}", y=foot + 15, class_="x")
        for t in across.ticks
        if _x(t, across) < right - 14 - 6.5 * len(x_name)
    ]
    name = tag("text", x_name, x=right, y=foot + 15, class_="name")
    return tag("g", lines, marks, name, class_="grid")


def _reference(reference: tuple[float, str], up: Axis) -> Markup:
    y = _y(reference[0], up)
    under = y < TOP + 14
    return tag(
        "g",
        tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=f"{y:.1f}", y2=f"{y:.1f}"),
        tag("text", reference[1], x=WIDTH - RIGHT, y=f"{y + (13 if under else -5):.1f}"),
        class_="reference",
    )


def _line(series: Series, across: Axis, up: Axis) -> Markup:
    """A path that breaks where a number is missing; single points are dots."""
    stretches: list[list[str]] = [[]]
    for x, y in series.points:
        if y is None:
            stretches.append([])
        else:
            stretches[-1].append(f"{_x(x, across):.1f} {_y(y, up):.1f}")
    path = "".join("M" + "L".join(stretch) for stretch in stretches if len(stretch) > 1)
    alone = [s[0].split() for s in stretches if len(s) == 1]
    return tag(
        "g",
        tag("path", d=path) if path else None,
        [tag("circle", cx=x, cy=y, r="2.5") for x, y in alone],
        class_=look(series.colour),
    )


def look(colour: int) -> str:
    """The style's class of the n-th run."""
    return f"series c{colour % COLOURS}" + " dashed" * (colour // COLOURS % 2)


def swatch(colour: int) -> Markup:
    line = tag("path", d="M0 5L22 5")
    return tag("svg", tag("g", line, class_=look(colour)), viewBox="0 0 22 10", class_="swatch")


def named(lines: Sequence[tuple[str, int]]) -> Markup:
    """The legend: which line is whose."""
    items = [tag("li", swatch(colour), " ", name) for name, colour in lines]
    return tag("ul", items, class_="legend")


def _summary(drawn: Sequence[Series], unit: str) -> str:
    sentences = []
    for s in drawn[:4]:
        known = [y for _, y in s.points if y is not None]
        sentences.append(f"{s.name}: from {known[0]:.4g}{unit} to {known[-1]:.4g}{unit}.")
    return " ".join(sentences)


def _table(drawn: Sequence[Series], across: Axis, up: Axis, unit: str, x_name: str) -> Markup:
    x_digits, y_digits = (digits_for(axis.high - axis.low) for axis in (across, up))
    values: dict[float, dict[int, float | None]] = {}
    for i, s in enumerate(drawn):
        for x, y in s.points:
            values.setdefault(x, {})[i] = finite(y)
    columns = range(len(drawn))
    body = [
        tag(
            "tr",
            tag("th", number(x, x_digits), scope="row"),
            [tag("td", number(row[i], y_digits) if i in row else "") for i in columns],
        )
        for x, row in sorted(values.items())
    ]
    heads = [tag("th", s.name, scope="col", data_look=look(s.colour)) for s in drawn]
    head = tag("tr", tag("th", x_name, scope="col"), heads)
    table = tag("table", tag("thead", head), tag("tbody", body), data_unit=unit or None)
    summary = tag("summary", f"Table{f' ({unit.strip()})' if unit.strip() else ''}")
    return tag("details", summary, tag("div", table, class_="scroll"), class_="data")
