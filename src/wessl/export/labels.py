"""Which pictures are labelled, and how: from a table, class folders, or any DATA with labels.

A labelled picture may be one of DATA's, known by its number there, or lie elsewhere.
"""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from wessl.data.decoding.bad_pictures import BadPicture
from wessl.data.sources.file_urls import as_path
from wessl.data.sources.names import Names
from wessl.data.sources.open import FileSource, Source, open_source
from wessl.data.workers.many import decode_many
from wessl.errors import UserError
from wessl.export.label_lookup import find, not_found
from wessl.export.label_table import as_text, read_table

NAMED = 5
"""Pictures that cannot be decoded; of more only the number is told."""


@dataclass(frozen=True)
class Labels:
    """Labels by number in DATA (`inside`) and by number in another source (`outside`)."""

    inside: dict[int, str]
    elsewhere: Source | None = None
    outside: dict[int, str] = field(default_factory=dict)
    where: dict[tuple[bool, int], str] = field(default_factory=dict)
    """The line that labels a picture, by whether it is inside, and its number."""
    notes: tuple[str, ...] = ()

    @property
    def every(self) -> list[str]:
        """One a labelled picture, those of DATA first, each kind by number."""
        own, others = (dict(sorted(side.items())) for side in (self.inside, self.outside))
        return [*own.values(), *others.values()]

    @property
    def counts(self) -> dict[str, int]:
        return dict(sorted(Counter(self.every).items()))


def read_labels(
    labels: str | Path, data: Source, classes: Sequence[str] = (), channels: int | None = None
) -> Labels:
    """`labels` is a .csv, a folder of class folders, or other DATA with labels.

    `classes`, where given, are all there may be: another label, or a class without one, is refused.
    """
    labels = as_path(os.fspath(labels))
    path = Path(labels).expanduser()
    if path.suffix.lower() in (".csv", ".tsv") and not path.is_dir():
        if not path.exists():
            raise UserError(f"--labels {labels} does not exist")
        found = _from_table(path, data)
    else:
        found = _from_source(labels, data, channels)
    _check_classes(found, labels, classes)
    return found


def readable(labels: Labels, data: Source, side: int) -> Labels:
    """Without pictures that cannot be decoded, which a note names; a class must keep one.

    Every labelled picture is tried, before anything long begins.
    """
    kept: dict[bool, dict[int, str]] = {True: {}, False: {}}
    bad: dict[str, list[str]] = {}
    for source, own, inside in (
        (data, labels.inside, True),
        (labels.elsewhere, labels.outside, False),
    ):
        if source is None:
            continue
        for number, picture in decode_many(source, sorted(own), side, 0):
            if isinstance(picture, BadPicture):
                where = labels.where.get((inside, number), "--labels")
                words = f"{where}: {source.name(number)} cannot be decoded ({picture})"
                bad.setdefault(own[number], []).append(words)
            else:
                kept[inside][number] = own[number]
    found = replace(labels, inside=kept[True], outside=kept[False])
    for label, some in bad.items():
        if label not in found.counts:
            raise UserError(
                f"{some[0]}, and no other picture labelled {label!r} can be; repair it or label one"
            )
    notes = [f"{words}; it is left out" for some in bad.values() for words in some]
    if (more := len(notes) - NAMED) > 0:
        notes[NAMED:] = [f"and {more:,} more labelled pictures are left out"]
    elsewhere = labels.elsewhere if found.outside else None
    return replace(found, elsewhere=elsewhere, notes=(*labels.notes, *notes))


def _from_table(path: Path, data: Source) -> Labels:
    lines = read_table(path)
    found = find(lines, path, data)
    lost = [line for line, place in zip(lines, found, strict=True) if place is None]
    if lost:
        raise UserError(not_found(lost, data))
    inside, outside, notes = dict[int, str](), dict[int, str](), list[str]()
    where = dict[tuple[bool, int], str]()
    elsewhere = list(dict.fromkeys(place for place in found if isinstance(place, str)))
    number_of = {place: i for i, place in enumerate(elsewhere)}
    for line, place in zip(lines, found, strict=True):
        assert place is not None
        own = isinstance(place, int)
        side, number = (inside, place) if isinstance(place, int) else (outside, number_of[place])
        before = where.setdefault((own, number), line.where)
        if before is line.where:
            side[number] = line.label
        elif side[number] != line.label:
            raise UserError(
                f"{line.where}: {line.path} is {line.label!r} here and {side[number]!r} in {before}"
            )
        else:
            notes.append(f"{line.where}: {line.path} is there already ({before}); counted once")
    source = _files(elsewhere, data, path) if elsewhere else None
    return Labels(inside, source, outside, where, tuple(notes))


def _files(paths: Sequence[str], like: Source, table: Path) -> FileSource:
    names = Names.collect(map(os.fsencode, paths))
    source = FileSource(f"labelled pictures of {table.resolve()}", "/", names, like.channels)
    if isinstance(like, FileSource):
        source.pixel_format = like.pixel_format  # one scale for deep pictures of both
    return source


def _from_source(labels: str | Path, data: Source, channels: int | None) -> Labels:
    source = open_source(labels, channels or data.channels)
    if source.labels is None:
        note = f" ({source.note})" if source.note else ""
        raise UserError(
            f"--labels {labels} has no labels{note}; give a .csv of path,label, or a folder with "
            "two or more folders named by class"
        )
    folder = Path(labels)
    if folder.is_dir() and isinstance(source, FileSource):
        below = {entry.name for entry in folder.iterdir() if entry.is_dir()}
        if empty := sorted(name for name in below - set(source.classes or ()) if name[0] != "."):
            raise UserError(
                f"--labels {labels}: class folder {empty[0]!r} holds no pictures; put one there "
                "or remove it"
            )
    own = _numbers_in(source, data)
    inside, outside, where = dict[int, str](), dict[int, str](), dict[tuple[bool, int], str]()
    for i, value in enumerate(source.labels.tolist()):
        label = as_text(source.classes[value]) if source.classes is not None else str(value)
        number = own.get(i)
        side, at = (outside, i) if number is None else (inside, number)
        side[at] = label
        where[number is not None, at] = f"--labels {labels}"
    return Labels(inside, source if outside else None, outside, where)


def _numbers_in(source: Source, data: Source) -> dict[int, int]:
    """Numbers in DATA of a source's pictures, where they are the same files or arrays."""
    if source.location == data.location:
        return {i: i for i in range(len(data))}
    if not isinstance(source, FileSource) or not isinstance(data, FileSource):
        return {}
    wanted = {os.path.normpath(source.file(i)): i for i in range(len(source))}
    there = map(os.path.normpath, map(data.file, range(len(data))))
    return {wanted[path]: i for i, path in enumerate(there) if path in wanted}


def _check_classes(found: Labels, labels: str | Path, classes: Sequence[str]) -> None:
    counts = found.counts
    if classes:
        if unknown := [label for label in counts if label not in classes]:
            at = [*found.inside.items()], [*found.outside.items()]
            inside, number = next(
                (side == 0, number)
                for side in (0, 1)
                for number, label in at[side]
                if label == unknown[0]
            )
            raise UserError(
                f"{found.where[inside, number]}: label {unknown[0]!r} is not among --classes "
                f"{', '.join(classes)}"
            )
        if bare := [name for name in classes if name not in counts]:
            raise UserError(f"--labels {labels}: no picture is labelled {bare[0]!r}; label one")
    if len(counts) < 2:
        raise UserError(
            f"--labels {labels} has only one class, {next(iter(counts))!r}; two or more are needed"
        )
