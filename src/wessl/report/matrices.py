"""Matrices as small pictures, with the numbers beside them for the pointer and the table."""

import base64
import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from wessl.report.markup import Markup, number, tag

Array = np.ndarray[Any, Any]
RAMP = ["#f7f7f2", "#dbe3e6", "#a9c1d4", "#6d9abf", "#3b6fa0", "#1f4470", "#0d1f3c"]
"""Light to dark in one hue: its order survives every colour blindness, and grey print."""
LEVELS = 255
LABELLED = 20
"""Rows and columns of larger matrices have no room for their names."""
LONG = 2
"""Names of columns with more letters stand upright."""


def png(levels_rc: Array, colours: Sequence[str] = RAMP) -> str:
    """Levels of 0 to 255 through the ramp, as a data URI."""
    places = np.linspace(0, 255, len(colours))
    anchors = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in colours])
    palette = np.stack([np.interp(np.arange(256), places, anchors[:, k]) for k in range(3)], 1)
    rows, columns = levels_rc.shape
    lines = b"".join(b"\0" + line.astype(np.uint8).tobytes() for line in levels_rc)
    header = struct.pack(">IIBBBBB", columns, rows, 8, 3, 0, 0, 0)
    chunks = (
        (b"IHDR", header),
        (b"PLTE", palette.round().astype(np.uint8).tobytes()),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    )
    body = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )
    return f"data:image/png;base64,{base64.b64encode(body).decode()}"


def as_array(values: Any) -> Array | None:
    """A rectangle of numbers, NaN where there is none; None for anything else."""
    try:
        array = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return array if array.ndim == 2 and array.size else None


def matrix(
    values: Any,
    title: str,
    row: str,
    column: str,
    note: str = "",
    names: Sequence[str] | None = None,
    numbered: bool = False,
    limits: tuple[float, float] = (0.0, 1.0),
) -> Markup | None:
    """A figure, or None when the values are no matrix; numbers are kept to a 255th of the limits.

    ``row`` and ``column`` say what one is, with ``#`` for its number or name. ``names`` are those
    of rows and columns alike; without them only ``numbered`` ones are written beside the picture.
    """
    array = as_array(values)
    if array is None:
        return None
    low, high = limits
    scaled = (array - low) / (high - low)
    levels = np.nan_to_num(np.clip(scaled, 0, 1) * LEVELS).round().astype(np.uint8)
    mean = float(np.nanmean(array)) if np.isfinite(array).any() else math.nan
    rows, columns = array.shape
    image = tag(
        "img",
        src=png(levels),
        alt=f"{title}: {rows} by {columns}, mean {number(mean)}, from light at {low:g} "
        f"to dark at {high:g}. Arrow keys read the values.",
        tabindex="0",
        class_="pixels",
        data_values=base64.b64encode(levels.tobytes()).decode(),
        data_shape=f"{rows} {columns}",
        data_limits=f"{low:g} {high:g}",
        data_names="\n".join(names) if names else None,
        data_row=row,
        data_column=column,
    )
    tip = tag("div", class_="tip", hidden=True, aria_live="polite")
    table = tag("details", tag("summary", "Table"), tag("div", class_="scroll"), class_="data")
    caption = tag("figcaption", tag("b", title), " ", tag("span", note) if note else None)
    plot = tag("div", image, tip, class_="plot")
    known = names or ([str(i) for i in range(max(rows, columns))] if numbered else None)
    if known and max(rows, columns) <= LABELLED:
        plot = _labelled(plot, known[:rows], known[:columns])
    return tag("figure", caption, plot, scale(low, high), table, class_="matrix")


def _labelled(plot: Markup, rows: Sequence[str], columns: Sequence[str]) -> Markup:
    """Names beside rows and beneath columns; the picture tells them itself, by keys and pointer."""
    upright = max(map(len, columns)) > LONG
    beside = tag("div", [tag("span", name, title=name) for name in rows], class_="beside")
    kind = "beneath upright" if upright else "beneath"
    beneath = tag("div", [tag("span", name, title=name) for name in columns], class_=kind)
    return tag("div", beside, plot, beneath, class_="labelled")


def scale(low: float, high: float) -> Markup:
    """What light and dark stand for."""
    ramp = f"background: linear-gradient(to right, {', '.join(RAMP)})"
    words = [tag("span", f"{low:g}"), tag("i", style=ramp), tag("span", f"{high:g}")]
    return tag("div", words, class_="scale", aria_hidden="true")
