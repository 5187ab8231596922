"""Which picture a line of a table means."""

import difflib
import os
from collections.abc import Sequence
from pathlib import Path

from wessl.data.sources import FileSource, Source
from wessl.errors import UserError
from wessl.export.label_table import Line


def find(lines: Sequence[Line], table: Path, data: Source) -> list[int | str | None]:
    """A number in DATA, the absolute path of a picture elsewhere, or nothing, for each line."""
    root = data.root if isinstance(data, FileSource) else None
    home = str(table.resolve().parent)
    guesses = [_guesses(line.path, root, home) for line in lines]
    wanted = {name for names in guesses for name in names}
    last = {os.path.basename(line.path) for line in lines}
    numbers, by_last = dict[str, int](), dict[str, list[int]]()
    for i in range(len(data)):  # one pass, whatever the number of pictures
        name = data.name(i)
        if name in wanted:
            numbers[name] = i
        if (base := os.path.basename(name)) in last:
            by_last.setdefault(base, []).append(i)
    found: list[int | str | None] = []
    for line, names in zip(lines, guesses, strict=True):
        place: int | str | None = next((numbers[name] for name in names if name in numbers), None)
        if place is None and os.path.isfile(there := os.path.join(home, line.path)):
            place = os.path.realpath(there)
        if place is None:
            alike = by_last.get(os.path.basename(line.path), [])
            if len(alike) > 1:
                some = ", ".join(data.name(i) for i in alike[:3])
                raise UserError(
                    f"{line.where}: {line.path} may be any of {len(alike)} pictures ({some}"
                    f"{', ...' * (len(alike) > 3)}); write more of its path"
                )
            place = alike[0] if alike else None
        found.append(place)
    return found


def _guesses(path: str, root: str | None, home: str) -> list[str]:
    """Names that DATA may have for it: as it stands, and seen from the table's folder."""
    names = [path]
    if root is not None:
        names.append(os.path.normpath(path))
        for there in (os.path.join(home, path), os.path.realpath(os.path.join(home, path))):
            # A list's names may be absolute themselves.
            names += [os.path.relpath(there, root), there]
    return names


def not_found(lost: Sequence[Line], data: Source) -> str:
    first = lost[0]
    more = f" (and {len(lost) - 1} more lines' pictures, down to {lost[-1].where})"
    said = (
        f"{first.where}: {first.path} is no picture of {data.location}, nor a file beside the "
        f"table{more * (len(lost) > 1)}"
    )
    names = (data.name(i) for i in range(min(len(data), 20_000)))
    alike = [name for name in difflib.get_close_matches(first.path, names, 5) if _like(first, name)]
    return f"{said}; did you mean {alike[0]}?" if alike else said


def _like(line: Line, name: str) -> bool:
    """Whether the file's own name is: folder and ending make any two of a class alike."""
    meant, there = Path(line.path).stem, Path(name).stem
    return difflib.SequenceMatcher(None, meant, there).ratio() >= 0.75
