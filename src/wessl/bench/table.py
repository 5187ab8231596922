"""Measurements as lines and tables for a terminal."""

from collections.abc import Iterator
from itertools import groupby

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from wessl.bench.record import Change
from wessl.bench.turns import Measured, times_as_fast

ITEMS = {"step": "img/s", "views": "img/s", "loader": "img/s", "few-shot": "fits/s"}
WIDTHS = (18, 13, 16, 9, 20)


def measured_lines(rows: list[Measured]) -> Iterator[RenderableType]:
    """Each subject's name, and under it a line for each way of doing it.

    The ratio is how many times as fast it is as the last of them, the straightforward one.
    """
    for (section, subject), group in groupby(rows, lambda row: (row.section, row.subject)):
        yield Text(f"{section}: {subject}", style="bold")
        alike, grid = list(group), Table.grid()
        for number, width in enumerate(WIDTHS):
            grid.add_column(min_width=width, justify="right" if number else "left", no_wrap=True)
        for row in alike:
            grid.add_row(f"  {row.way}", *cells(row, alike[-1]))
        yield grid


def cells(row: Measured, last: Measured) -> list[str]:
    facts, more = row.facts, []
    if "bytes" in facts:
        more.append(f"{facts['bytes'] / 2**20:,.0f} MiB")
    if "mfu" in facts:
        more.append(f"MFU {facts['mfu']:.0%}")
    if "of_products" in facts:
        more.append(f"rate {facts['of_products']:.0%}")
    if "excess" in facts:
        more.append(f"excess {facts['excess']:.0e}")
    return [
        f"{1e3 * row.seconds:,.1f} ms",
        f"{rate(row.items / row.seconds)} {ITEMS[row.section]}",
        "" if row is last else f"{times_as_fast(row.by_item, last.by_item):.2f}x",
        "  " + ", ".join(more),
    ]


def rate(items: float) -> str:
    return f"{items:,.0f}" if items >= 100 else f"{items:.3g}"


def compared_lines(changes: list[Change]) -> Iterator[RenderableType]:
    """The same subjects, each number as now over then: below 1 is better.

    Behind a time, the same of its ratio to the straightforward way, which had the same machine.
    """
    for (section, subject), group in groupby(changes, lambda c: (c.section, c.subject)):
        yield Text(f"{section}: {subject}", style="bold")
        grid = Table.grid(padding=(0, 1))
        for width in (18, 10, 8, 13, 10):
            grid.add_column(min_width=width, no_wrap=True)
        for change in group:
            mark = "" if not change.worse else "slower" if change.what == "time" else "more"
            style = "bold red" if mark else None
            beside = "" if change.beside is None else f"beside {change.beside:.2f}"
            told = (f"  {change.way}", change.what, f"{change.ratio:.2f}", beside, mark)
            grid.add_row(*told, style=style)
        yield grid
