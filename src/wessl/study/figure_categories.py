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
            diamond(axis, place, row, table, column)
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
    gain = gains(row, column)
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


def diamond(axis: Any, place: int, row: State, table: State, column: State) -> None:
    """The paper's gain; one so far off that it would squeeze all others is told at the edge."""
    printed = papers_gain(row, column)
    if printed is None:
        return
    if not is_far_off(printed, table, column):
        axis.plot(
            printed, place, "D", markersize=5.5, markerfacecolor="none", markeredgecolor=COLOURS[1]
        )
        return
    arrow = "\N{LEFTWARDS ARROW}" if printed < 0 else "\N{RIGHTWARDS ARROW}"
    axis.text(
        0.01 if printed < 0 else 0.99,
        place,
        f"{arrow} {printed:+.1f}",
        transform=axis.get_yaxis_transform(),
        ha="left" if printed < 0 else "right",
        va="center",
        fontsize=7.5,
        color=COLOURS[1],
    )


FEW = 3
"""Gains of the paper among which none is told to be far from the others."""


def is_far_off(printed: float, table: State, column: State) -> bool:
    """By more than all else that is shown in the column spans."""
    rows = table["rows"]
    if sum(papers_gain(row, column) is not None for row in rows) <= FEW:
        return False
    others = [x for row in rows for x in shown(row, column) if x != printed]
    low, high = min(others), max(others)
    return not low - (high - low) <= printed <= high + (high - low)


def papers_gain(row: State, column: State) -> float | None:
    printed: float | None = row["results"][column["name"]]["paper_difference"]
    return printed


def shown(row: State, column: State) -> list[float]:
    """Ends of the row's interval and the paper's gain, where there are any."""
    gain, printed = gains(row, column), papers_gain(row, column)
    ends = [] if gain is None else [gain["mean"] + s * (gain["half"] or 0.0) for s in (-1, 1)]
    return ends if printed is None else [*ends, printed]
