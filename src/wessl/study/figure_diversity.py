"""Decay curves of the similarity between heads, and diversity against accuracy."""

from typing import Any

import numpy as np

from wessl.study.figure import COLOURS

State = dict[str, Any]


def diversity(table: State) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.0, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    accuracy = next(c for c in table["columns"] if c["unit"] == "%")
    for row, colour in zip(table["rows"], COLOURS, strict=False):
        curve(left, row, colour)
        point(right, row, accuracy, colour)
    left.set_title("similarity of matched codes")
    left.set_xlabel("share of codes, the most alike first")
    left.set_ylabel("cosine; dashed: before alignment")
    left.set_ylim(-0.02, 1.02)
    left.legend()
    right.set_title(f"diversity against {accuracy['name']}")
    right.set_xlabel("diversity: 0 copies, 1 nothing in common")
    right.set_ylabel(f"{accuracy['name']}, %; small: each seed")
    right.margins(0.15)
    return figure


def curve(axis: Any, row: State, colour: str) -> None:
    found = [c for c in row["curves"].values() if c]
    if not found:
        return
    share = found[0]["share"]
    for which, style in (("after", "-"), ("before", "--")):
        mean = np.mean([c[which] for c in found], axis=0)
        name = row["name"] if which == "after" else None
        width = 1.8 if which == "after" else 1.0
        axis.plot(share, mean, style, color=colour, linewidth=width, label=name)


def point(axis: Any, row: State, accuracy: State, colour: str) -> None:
    x, y = row["results"]["diversity"], row["results"][accuracy["name"]]
    both = sorted(x["seeds"].keys() & y["seeds"].keys())
    if not both:
        return
    for seed in both:
        axis.plot(x["seeds"][seed], y["seeds"][seed], "o", color=colour, markersize=4, alpha=0.4)
    axis.plot(x["mean"], y["mean"], "o", color=colour, markersize=9)
