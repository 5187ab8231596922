"""A table of labels, path and label a line, as people write them by hand or with a spreadsheet."""

import csv
import io
import os
from pathlib import Path
from typing import NamedTuple

from wessl.errors import UserError

PATHS = ("path", "file", "filename", "file_name", "image", "picture", "name")
LABELS = ("label", "class", "category", "target")


class Line(NamedTuple):
    """What one line says, and where: `labels.csv, line 7`."""

    path: str
    label: str
    where: str


def read_table(path: Path) -> list[Line]:
    """Commas, semicolons or tabs; a header is known by its words and may name other columns too."""
    rows = _rows(path)
    if not rows:
        raise UserError(f"--labels {path} is empty; it needs a path and a label a line")
    header = [cell.strip().lower() for cell in rows[0][1]]
    if "confidence" in header:
        raise UserError(
            f"--labels {path} is what `wessl classify` wrote: its labels are guesses. Keep only "
            "the lines you have checked, and only their path and label"
        )
    at = _columns(header)
    if at is not None:
        rows = rows[1:]
    lines = [_line(path, number, cells, at) for number, cells in rows]
    if not lines:
        raise UserError(f"--labels {path} has a header and no line below it")
    return lines


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """Cells of the lines that hold anything, with the lines' numbers."""
    try:
        # As file names come from the system: a byte that is no text is kept.
        text = path.read_bytes().decode("utf-8-sig", "surrogateescape")
    except OSError as error:
        raise UserError(f"--labels {path} cannot be read ({error.strerror or error})") from error
    if "\0" in text:
        raise UserError(f"--labels {path} is not a text file; give a csv of path,label")
    first = next((line for line in text.splitlines() if line.strip()), "")
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True)
    try:
        return [(reader.line_num, cells) for cells in reader if any(map(str.strip, cells))]
    except csv.Error as error:
        raise UserError(f"--labels {path}, line {reader.line_num}: {error}") from error


def _columns(header: list[str]) -> tuple[int, int] | None:
    """Where path and label stand, if this is a header."""
    paths = [i for i, word in enumerate(header) if word in PATHS]
    labels = [i for i, word in enumerate(header) if word in LABELS]
    return (paths[0], labels[0]) if paths and labels else None


def _line(path: Path, number: int, cells: list[str], at: tuple[int, int] | None) -> Line:
    where = f"{path}, line {number}"
    if at is None and len(cells) != 2:
        raise UserError(
            f"{where}: {len(cells)} columns where a path and a label are wanted; quote a path with "
            "a comma in it, or name the columns in a first line: path,label"
        )
    first, second = at or (0, 1)
    name, label = (cells[i].strip() if i < len(cells) else "" for i in (first, second))
    if not name or not label:
        raise UserError(f"{where}: no {'path' if not name else f'label for {name}'}")
    return Line(os.path.expanduser(name), as_text(label), where)


def as_text(label: str) -> str:
    """A label whose bytes are no UTF-8, as Windows means them, and where it means nothing, Latin-1,
    so that no two bytes become one letter; others as they are.

    >>> as_text("caf\\udce9"), as_text("café")
    ('café', 'café')
    """
    try:
        label.encode()
    except UnicodeEncodeError:
        each = (bytes([byte]) for byte in label.encode("utf-8", "surrogateescape"))
        return "".join(one.decode("cp1252", "ignore") or one.decode("latin-1") for one in each)
    return label
