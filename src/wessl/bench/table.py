"""Measurements as lines and tables for a terminal."""

from collections.abc import Iterator
from itertools import groupby

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wessl.bench.record import SLOWER, Change
from wessl.bench.turns import Measured, times_as_fast

ITEMS = {"step": "img/s", "views": "img/s", "loader": "img/s", "few-shot": "fits/s"}
WIDTHS = (18, 10, 13, 7, 0)


def measured_lines(rows: list[Measured]) -> Iterator[RenderableType]:
    """Each subject's name, and under it a line for each way of doing it.

    The ratio is how many times as fast it is as the last of them, the plain one.
    """
    for (section, subject), group in groupby(rows, lambda row: (row.section, row.subject)):
        yield Text(f"{section}: {subject}", style="bold")
        alike, grid = list(group), Table.grid(padding=(0, 1))
        same_work = len({row.items for row in alike}) == 1
        for number, width in enumerate(WIDTHS):
            grid.add_column(min_width=width, justify="right" if number else "left", no_wrap=True)
        for row in alike:
            grid.add_row(f"  {row.way}", *cells(row, alike[-1], same_work))
        yield grid


def cells(row: Measured, last: Measured, same_work: bool = True) -> list[str]:
    """Milliseconds of a round only where all ways did as much in one."""
    facts, more = row.facts, ["uneven"] * row.uneven
    if "bytes" in facts:
        more.append(f"{facts['bytes'] / 2**20:,.0f} MiB")
    if "mfu" in facts:
        more.append(f"MFU {facts['mfu']:.0%}")
    if "of_products" in facts:
        more.append(f"rate {facts['of_products']:.0%}")
    if "excess" in facts:
        more.append(f"excess {facts['excess']:.0e}")
    return [
        f"{1e3 * row.seconds:,.1f} ms" if same_work else "",
        f"{rate(row.items / row.seconds)} {ITEMS[row.section]}",
        "" if row is last else f"{times_as_fast(row.by_item, last.by_item):.2f}x",
        ", ".join(more),
    ]


def rate(items: float) -> str:
    return f"{items:,.0f}" if items >= 100 else f"{items:.3g}"


def in_short(rows: list[Measured]) -> Iterator[str]:
    """How many times as fast our steps are as the plain ones, over all sizes and numbers of heads.

    In the same precision, and in bf16 beside the plain ones in fp32, as one would write them first.
    """
    times: dict[tuple[str, str], list[float]] = {}
    plain = {row.subject: row for row in rows if row.section == "step" and row.way != "wessl"}
    for row in rows:
        if row.section == "step" and row.way == "wessl":
            precision = "bf16" if ", bf16," in row.subject else "fp32"
            for other in {precision, "fp32"}:
                beside = plain.get(row.subject.replace(f", {precision},", f", {other},"))
                if beside is not None:
                    ratio = times_as_fast(row.by_item, beside.by_item)
                    times.setdefault((precision, other), []).append(ratio)
    for (ours, other), ratios in sorted(times.items(), reverse=True):
        low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
        yield f"in {ours} {span(low, high)} times as fast as a plain step in {other}"
    yield from cost_of_heads(rows)


def cost_of_heads(rows: list[Measured]) -> Iterator[str]:
    """The most heads beside one, over all sizes and precisions."""
    by_count: dict[int, dict[str, Measured]] = {}
    for row in rows:
        if row.section == "step" and row.way == "wessl" and ", m = " in row.subject:
            subject, count = row.subject.rsplit(", m = ", 1)
            by_count.setdefault(int(count), {})[subject] = row
    most = max(by_count, default=1)
    pairs = [(by_count[1][s], row) for s, row in by_count[most].items()] if most > 1 else []
    told = {"time": [times_as_fast(one.by_item, many.by_item) for one, many in pairs]}
    told["memory"] = [
        many.facts["bytes"] / one.facts["bytes"] for one, many in pairs if "bytes" in one.facts
    ]
    words = [
        f"{span(f'{min(ratios):.2f}', f'{max(ratios):.2f}')} times the {what}"
        for what, ratios in told.items()
        if ratios
    ]
    if words:
        yield f"{most} heads take {' and '.join(words)} of one"


def span(low: str, high: str) -> str:
    return f"{low} to {high}" if low != high else low


def compared_lines(changes: list[Change]) -> Iterator[RenderableType]:
    """What has changed, now over then: below 1 is better.

    In brackets the same of its ratio to the plain way, which had the same machine.
    """
    changed = [c for c in changes if abs(c.ratio - 1) > SLOWER - 1]
    for (section, subject), group in groupby(changed, lambda c: (c.section, c.subject)):
        yield Text(f"{section}: {subject}", style="bold")
        grid = Table.grid(padding=(0, 1))
        for width in (18, 10, 8, 8, 0):
            grid.add_column(min_width=width, no_wrap=True)
        for change in group:
            mark = "" if not change.worse else "slower" if change.what == "time" else "more"
            style = "bold red" if mark else None
            beside = "" if change.beside is None else f"({change.beside:.2f})"
            told = (f"  {change.way}", change.what, f"{change.ratio:.2f}", beside, mark)
            grid.add_row(*told, style=style)
        yield grid
    same, most = len(changes) - len(changed), f"{100 * (SLOWER - 1):.0f} %"
    yield f"{same} of {len(changes)} numbers have changed by less than {most}"
