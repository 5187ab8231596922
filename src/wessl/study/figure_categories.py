"""Rows with names: a dot each, its interval, and the paper's diamond."""

from typing import Any

from wessl.study.figure import COLOURS, INK, SOFT, bases, gain_label, gains, panels, title

State = dict[str, Any]


def categories(table: State) -> Any:
    rows = table["rows"][::-1]
    figure, axes = panels(table, 2.7, 0.5 + 0.27 * len(rows), share_y=True)
    for axis, column in zip(axes, table["columns"], strict=True):
        axis.axvline(0, color=SOFT, linewidth=1)
        axis.grid(axis="y", visible=False)
        for place, row in enumerate(rows):
            dot(axis, place, row, column)
        title(axis, table, column)
        axis.set_xlabel(gain_label(column))
        axis.set_yticks(range(len(rows)), [label(row, table) for row in rows], color=INK)
        axis.set_ylim(-0.6, len(rows) - 0.4)
        axis.tick_params(axis="y", length=0)
    return figure


def label(row: State, table: State) -> str:
    known = row["name"] not in bases(table) or "base" in row["name"]
    return row["name"] if known else f"{row['name']} (base)"


def dot(axis: Any, place: int, row: State, column: State) -> None:
    gain, printed = gains(row, column), row["results"][column["name"]]["paper_difference"]
    if gain is None:
        failures = row["failures"].values()
        words = "diverged" if any(f["diverged"] for f in failures) else "not measured"
        axis.text(0, place, f" {words}", va="center", fontsize=7.5, color=SOFT)
    else:
        colour = SOFT if row["base"] is None else COLOURS[0]
        if gain["half"] is not None:
            axis.errorbar(
                gain["mean"], place, xerr=gain["half"], color=colour, linewidth=1.6, capsize=0
            )
        axis.plot(gain["mean"], place, "o", color=colour, markersize=6)
    if printed is not None:
        axis.plot(
            printed, place, "D", markersize=5.5, markerfacecolor="none", markeredgecolor=COLOURS[1]
        )
