"""The paper's figure of a study, in our style: gains over the base, the paper's gains beside them.

Accuracies on other data cannot be laid over the paper's, but gains can, so gains are drawn.
"""

import math
import textwrap
from pathlib import Path
from typing import Any

from wessl.files import write_whole

State = dict[str, Any]
COLOURS = ("#0072b2", "#d55e00", "#00805f", "#9c4a86", "#8a6a00", "#555c65")
INK, SOFT, LINE = "#1c2127", "#59636e", "#e2e4e1"
PER_ROW = 3
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": LINE,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "grid.linewidth": 0.8,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "svg.hashsalt": "wessl",
}


def draw(table: State, out: Path) -> None:
    """``figure.svg`` and ``figure.png``; nothing while nothing is measured."""
    if not any(r["n"] for row in table["rows"] for r in row["results"].values()):
        return
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from wessl.study.figure_categories import categories
    from wessl.study.figure_diversity import diversity
    from wessl.study.figure_numbers import numbers

    kind = (
        numbers if table["axis"] else diversity if table["measures"] == "diversity" else categories
    )
    with mpl.rc_context(STYLE):
        figure = kind(table)
        FigureCanvasAgg(figure)
        about(figure, table)
        for name, metadata in (("svg", {"Date": None}), ("png", {})):
            write_whole(
                out / f"figure.{name}",
                lambda path, name=name, metadata=metadata: figure.savefig(  # type: ignore[misc]
                    path, format=name, dpi=200, facecolor="white", metadata=metadata
                ),
            )


def about(figure: Any, table: State) -> None:
    """Title above, what was measured on what below, and the panels in between."""
    wide, high = figure.get_size_inches()
    words = textwrap.wrap(f"{table['study']}: {table['line']}", int(wide / 0.105))
    figure.text(
        0.12 / wide, 1 - 0.1 / high, "\n".join(words), va="top", fontsize=11.5, weight="bold"
    )
    top = 0.2 + 0.21 * len(words)
    for legend in figure.legends:
        legend.set_bbox_to_anchor((0.02 / wide, 1 - (top - 0.08) / high), figure.transFigure)
        top += 0.3
    seeds = len(table["seeds"])
    marks = f"95 % t-interval over {seeds} seeds, paired" if seeds > 1 else "one seed: no intervals"
    if table["measures"] == "diversity":
        marks = f"mean over {seeds} seeds" if seeds > 1 else "one seed"
    size = ", ".join([f"size {table['size']}", *table.get("otherwise", ())])
    notes = f"Ours: {table['pictures']:,} pictures of {table['train']}, {size}; {marks}."
    notes += f" Hollow diamonds: the paper, {table['paper']}." if has_paper(table) else ""
    lines = textwrap.wrap(notes, int(wide / 0.063))
    figure.text(0.12 / wide, 0.08 / high, "\n".join(lines), va="bottom", fontsize=7.5, color=SOFT)
    bottom = 0.15 + 0.13 * len(lines)
    figure.get_layout_engine().set(rect=(0, bottom / high, 1, 1 - (top + bottom) / high))


def has_paper(table: State) -> bool:
    return any(
        result["paper_difference"] is not None
        for row in table["rows"]
        for result in row["results"].values()
    )


def panels(table: State, wide: float, high: float, share_y: bool) -> tuple[Any, list[Any]]:
    """A figure with a panel for every column, and the panels."""
    from matplotlib.figure import Figure

    count = len(table["columns"])
    across = min(PER_ROW, count)
    down = math.ceil(count / across)
    size = max(6.0, 0.3 + wide * across + 1.2 * share_y), 1.1 + high * down
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(down, across, squeeze=False, sharey=share_y).flatten().tolist()
    for empty in axes[count:]:
        empty.set_visible(False)
    return figure, axes[:count]


def title(axis: Any, table: State, column: State) -> None:
    """The column, and the level from which gains are counted, where there is only one."""
    found, words = bases(table), column["name"]
    levels = [row for row in table["rows"] if row["name"] in found]
    if len(levels) == 1:
        mean = levels[0]["results"][column["name"]]["mean"]
        if mean is not None:
            words += f"  (base {mean:.{column['digits']}f}{_unit(column)})"
    axis.set_title(words)


def bases(table: State) -> set[str]:
    """The names of the rows that others are compared with, whatever they are called."""
    return {row["base"] for row in table["rows"] if row["base"] is not None}


def _unit(column: State) -> str:
    return f" {column['unit']}" if column["unit"] else ""


def gain_label(column: State) -> str:
    unit = f", {column['difference_unit']}" if column["difference_unit"] else ""
    return f"gain over base{unit}" if not column["relative"] else "more than the base, %"


def gains(row: State, column: State) -> State | None:
    """Mean and half-widths of a row's gain; a base's is 0 by definition."""
    result = row["results"][column["name"]]
    if row["base"] is None:
        return dict(mean=0.0, half=None) if result["n"] else None
    difference = result["difference"]
    if difference is None:
        return None
    low = difference["low"]
    return dict(mean=difference["mean"], half=None if low is None else difference["mean"] - low)
