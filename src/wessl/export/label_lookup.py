"""Which picture a line of a table means."""

import difflib
import os
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from wessl.data.sources.open import FileSource, Source
from wessl.errors import UserError, did_you_mean
from wessl.export.label_table import Line

_LOOKED_AT = 20_000


def find(lines: Sequence[Line], table: Path, data: Source) -> list[int | str | None]:
    """A number in DATA, the absolute path of a picture elsewhere, or nothing, for each line."""
    root = data.root if isinstance(data, FileSource) else None
    home = str(table.resolve().parent)
    guesses = [_guesses(line.path, root, home) for line in lines]
    wanted = {name for names in guesses for name in names}
    ends = [_normal(line.path) for line in lines]
    by_end: dict[str, list[int]] = {end: [] for end in ends}
    last = set(map(os.path.basename, ends))
    numbers = dict[str, int]()
    for i in range(len(data)):  # one pass, whatever the number of pictures
        name = data.name(i)
        if name in wanted:
            numbers[name] = i
        if os.path.basename(name) in last:
            for end in _ends(data, i):
                if end in by_end:
                    by_end[end].append(i)
    found: list[int | str | None] = []
    for line, names, end in zip(lines, guesses, ends, strict=True):
        place: int | str | None = next((numbers[name] for name in names if name in numbers), None)
        if place is None and os.path.isfile(there := os.path.join(home, line.path)):
            place = os.path.realpath(there)
        if place is None:
            alike = by_end[end]
            if len(alike) > 1:
                some = ", ".join(data.name(i) for i in alike[:3])
                raise UserError(
                    f"{line.where}: {line.path} may be any of {len(alike)} pictures ({some}"
                    f"{', ...' * (len(alike) > 3)}); write more of its path"
                )
            place = alike[0] if alike else None
        found.append(place)
    return found


def _normal(path: str) -> str:
    """Without `.`, but with `..`: what that leads to must be there, and is no end of a path."""
    if "://" in path or ".." in path.split("/"):
        return path
    return os.path.normpath(path)


def _ends(data: Source, number: int) -> Iterator[str]:
    """A picture's whole path, and what is left of it without its first folders, one by one."""
    whole = data.name(number)
    if isinstance(data, FileSource):
        whole = os.path.normpath(data.file(number))
    folders = whole.split("/")
    return ("/".join(folders[i:]) for i in range(len(folders)))


def _guesses(path: str, root: str | None, home: str) -> list[str]:
    """Names that DATA may have for it: as it stands, and seen from the table's folder."""
    seen = os.path.join(home, path), os.path.realpath(os.path.join(home, path))
    if root is None:
        return [path, *seen]  # the names in an array are absolute
    names = [path, os.path.normpath(path)]
    for there in seen:
        names += [os.path.relpath(there, root), there]  # as a list's names may be
    return names


def not_found(lost: Sequence[Line], data: Source) -> str:
    first = lost[0]
    more = f" (and {len(lost) - 1} more lines' pictures, down to {lost[-1].where})"
    said = (
        f"{first.where}: {first.path} is no picture of {data.location}, nor a file beside the "
        f"table{more * (len(lost) > 1)}"
    )
    last = os.path.basename(first.path)
    every = map(data.name, range(len(data)))
    same = islice((name for name in every if os.path.basename(name) == last), _LOOKED_AT)
    if meant := did_you_mean(first.path, same, 0):
        return f"{said}; {meant.strip()}"
    names = map(data.name, range(min(len(data), _LOOKED_AT)))
    alike = [name for name in difflib.get_close_matches(first.path, names, 5) if _like(first, name)]
    return f"{said}; did you mean {alike[0]}?" if alike else said


def _like(line: Line, name: str) -> bool:
    """Whether the file's own name is: folder and ending make any two of a class alike."""
    meant, there = Path(line.path).stem, Path(name).stem
    return difflib.SequenceMatcher(None, meant, there).ratio() >= 0.75
