"""Rows along a number: a line a series with error bars, and the paper's diamonds."""

import math
from typing import Any

from wessl.study.figure import COLOURS, SOFT, gain_label, gains, panels, title

State = dict[str, Any]


def numbers(table: State) -> Any:
    figure, axes = panels(table, 3.1, 2.5, share_y=False)
    names = dict.fromkeys(row["series"] for row in table["rows"] if row["x"] is not None)
    colours = dict(zip(names, COLOURS * 3, strict=False))
    for axis, column in zip(axes, table["columns"], strict=True):
        axis.axhline(0, color=SOFT, linewidth=1)
        for i, (series, colour) in enumerate(colours.items()):
            # Side by side, so that intervals of two series at one place can be told apart.
            shift = 1.0 if countless(table) else 1.02 ** (i - (len(colours) - 1) / 2)
            line(axis, table, column, series, colour, shift)
        for row in table["rows"]:
            if row["x"] is None and row["base"] is not None:
                level(axis, row, column)
        title(axis, table, column)
        along(axis, table)
        axis.set_ylabel(gain_label(column))
    handles, labels = axes[0].get_legend_handles_labels()
    if len(handles) > 1:
        figure.legend(handles, labels, loc="upper left", ncols=len(handles), columnspacing=1.4)
    return figure


def line(axis: Any, table: State, column: State, series: str, colour: str, shift: float) -> None:
    rows = [row for row in table["rows"] if row["series"] == series and row["x"] is not None]
    rows.sort(key=lambda row: row["x"])
    found = [(row["x"], gain) for row in rows if (gain := gains(row, column)) is not None]
    axis.errorbar(
        [x * shift for x, _ in found],
        [gain["mean"] for _, gain in found],
        yerr=[gain["half"] or 0.0 for _, gain in found],
        color=colour,
        marker="o",
        markersize=5,
        linewidth=1.6,
        elinewidth=1.2,
        label=series,
    )
    for row in rows:
        printed = row["results"][column["name"]]["paper_difference"]
        if printed is not None:
            x = row["x"] * shift
            axis.plot(x, printed, "D", markersize=6, markerfacecolor="none", markeredgecolor=colour)


def level(axis: Any, row: State, column: State) -> None:
    """A row that is not on the axis, as a level to compare with."""
    gain = gains(row, column)
    if gain is None:
        return
    if gain["half"] is not None:
        low, high = gain["mean"] - gain["half"], gain["mean"] + gain["half"]
        axis.axhspan(low, high, color=COLOURS[1], alpha=0.1, linewidth=0)
    axis.axhline(gain["mean"], color=COLOURS[1], linewidth=1.6, label=row["name"])
    printed = row["results"][column["name"]]["paper_difference"]
    if printed is not None:  # at the edge: it has no place along the axis
        edge = axis.get_yaxis_transform()
        style: Any = dict(markersize=6, markerfacecolor="none", markeredgecolor=COLOURS[1])
        axis.plot(0.985, printed, "D", transform=edge, clip_on=False, **style)


def along(axis: Any, table: State) -> None:
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter, NullLocator

    places = sorted({row["x"] for row in table["rows"] if row["x"] is not None})
    axis.set_xlabel(table["axis"]["label"])
    if table["axis"]["log"]:
        axis.set_xscale("log")
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_minor_formatter(NullFormatter())
    if not countless(table):
        axis.set_xticks(places, apart(places, table["axis"]["log"]))
    else:
        wide = places[-1] > 100 * places[0]  # labels in between would lie upon each other
        axis.xaxis.set_major_locator(LogLocator(subs=(1,) if wide else (1, 2, 5)))
        axis.xaxis.set_major_formatter(EngFormatter(sep=""))


def countless(table: State) -> bool:
    """Whether every row has a place of its own, as numbers of parameters are."""
    return any(row["x"] is not None and row["x"] > 1000 for row in table["rows"])


def apart(places: list[float], log: bool) -> list[str]:
    """Their labels, but for those that would lie upon the one before."""
    position = [math.log(place) if log else place for place in places]
    least = 0.12 * (position[-1] - position[0])
    labels, last = [], -math.inf
    for place, at in zip(places, position, strict=True):
        labels.append(f"{place:g}" if at - last >= least else "")
        last = at if labels[-1] else last
    return labels
