"""Processes that train together must see the same pictures, each on its own machine."""

import hashlib
from dataclasses import dataclass

from wessl.data.sources.open import Source
from wessl.errors import UserError
from wessl.pretrain.parallel import Elsewhere, Team


@dataclass(frozen=True)
class Seen:
    """What a process finds at a place; not when it was written, which copies differ in."""

    place: str
    pictures: int
    names: str
    labels: str


def describe(source: Source) -> Seen:
    # An array's pictures are named after its file, and that may lie elsewhere on each machine.
    names = hashlib.blake2b(digest_size=16)
    for index in range(len(source)):
        names.update(source.name(index).removeprefix(source.location).encode(errors="replace"))
        names.update(b"\0")
    numbers = b"none" if source.labels is None else source.labels.tobytes()
    labels = hashlib.blake2b(numbers + str(source.classes).encode(), digest_size=16)
    return Seen(source.location, len(source), names.hexdigest(), labels.hexdigest())


def refuse_other_pictures(team: Team, *sources: Source | None) -> None:
    """Stops all alike if one finds other pictures or labels than the first."""
    if team.group is None:
        return
    seen = team.gather([None if source is None else describe(source) for source in sources])
    for rank, of_process in enumerate(seen):
        for one, other in zip(seen[0], of_process, strict=True):
            if one is not None and other is not None and (words := difference(one, other, rank)):
                error = UserError(
                    f"{words}; every machine must find the same pictures at the same path"
                )
                raise error if team.first else Elsewhere(error)


def difference(one: Seen, other: Seen, rank: int) -> str | None:
    who, where = f"process {rank}", other.place
    if one.pictures != other.pictures:
        return f"{who} finds {other.pictures:,} pictures in {where}, process 0 {one.pictures:,}"
    if one.names != other.names:
        return f"{who} finds as many pictures in {where} as process 0, but under other names"
    if one.labels != other.labels:
        return f"{who} finds the same pictures in {where} as process 0, but with other labels"
    return None
