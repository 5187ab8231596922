"""Features of any number of pictures in a folder on disk, which a kill does not lose.

::

    HOME/key             what the features are made of: weights, pictures, transform
    HOME/part-000007.npz numbers, features and unreadable pictures of one block of the source
    HOME/features.npy    all of them in the source's order, once every part is there
    HOME/pictures.npz    their numbers in the source, and the unreadable ones; written last

Nothing as large as the features is ever held in memory: they are written part by part and read
through a memory map. A folder with another key is begun anew.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from wessl.data.decoding.bad_pictures import Skipped
from wessl.data.sources.open import Source
from wessl.errors import Failure
from wessl.evaluate.features.passes import Progress
from wessl.evaluate.stores.features import weights_digest
from wessl.export.parts import DAMAGED, LISTED, alone, read_arrays, save, whole, write_header
from wessl.export.stream import Look, encode
from wessl.files import sha256_of, write_whole

Say = Callable[[str], None]
PART = 2048
"""Pictures a part: what a kill costs at most."""


@dataclass(frozen=True)
class Embedded:
    """Features `(n, width)` of the readable pictures, mapped from a file, and their names."""

    source: Source
    features: NDArray[Any]
    numbers: NDArray[np.int64]  # of the rows, in the source
    skipped: Skipped

    def __len__(self) -> int:
        return len(self.numbers)

    def name(self, row: int) -> str:
        return self.source.name(int(self.numbers[row]))

    def names(self) -> Iterator[str]:
        return (self.name(row) for row in range(len(self)))


def key_of(look: Look, source: Source, part: int = PART) -> str:
    """64 digits that change with anything the features depend on."""
    return sha256_of(_made_of(look, source, part, source.fingerprint, weights_digest(look.encoder)))


def name_of(look: Look, source: Source, own: bool) -> str:
    """64 digits for what the features serve: those of changed pictures replace the old ones.

    In a folder that is its encoder's `own` so do those of changed weights.
    """
    weights = "its own" if own else weights_digest(look.encoder)
    return sha256_of(_made_of(look, source, PART, source.location, weights))


def _made_of(look: Look, source: Source, part: int, pictures: str, weights: str) -> dict[str, Any]:
    described = look.encoder.description
    return dict(
        format=1,
        weights=weights,
        pictures=pictures,
        channels=source.channels,
        transform={name: described[name] for name in ("resize", "image_size", "mean", "std")},
        side=look.side,
        reading=look.reading,
        number=look.number,
        precision=look.precision,
        cut=[part, look.batch_size],
    )


def embed_into(
    home: Path,
    look: Look,
    source: Source,
    part: int = PART,
    workers: int | None = None,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Embedded:
    """Everything that is not yet in the folder `home` is computed; finished parts are kept.

    ::

        found = embed_into(Path("features.parts"), Look(encoder), open_source("photos/"))
        found.features, found.name(0), found.skipped
    """
    look.check()
    home.mkdir(parents=True, exist_ok=True)
    with alone(home):
        _begin(home, key_of(look, source, part), say)
        if _read_listing(home) is None:
            _compute(home, look, source, part, workers, progress, say)
        return _open(home, source)


def _begin(home: Path, key: str, say: Say | None) -> None:
    try:
        known = (home / "key").read_text()
    except OSError:
        known = ""
    if known == key:
        return
    left = [*home.glob("part-*.npz"), home / "features.npy", home / "pictures.npz"]
    if known and any(file.exists() for file in left) and say is not None:
        say(f"{home} holds features of other pictures, weights or settings; they are made anew")
    for file in left:
        file.unlink(missing_ok=True)
    write_whole(home / "key", lambda temporary: temporary.write_text(key))


def _compute(
    home: Path,
    look: Look,
    source: Source,
    part: int,
    workers: int | None,
    progress: Progress | None,
    say: Say | None,
) -> None:
    blocks = [range(at, min(at + part, len(source))) for at in range(0, len(source), part)]
    todo = [i for i in range(len(blocks)) if not whole(_path(home, i))]
    done = len(source) - sum(len(blocks[i]) for i in todo)
    if done and say is not None:
        say(f"{done:,} of {len(source):,} pictures were done before; the rest follows")
    parts = encode(look, source, [blocks[i] for i in todo], workers)
    with contextlib.closing(parts):
        for i, found in zip(todo, parts, strict=True):
            arrays = found._asdict()
            write_whole(_path(home, i), lambda temporary, a=arrays: save(temporary, a))  # type: ignore[misc]
            done += len(blocks[i])
            if progress is not None:
                progress(done, len(source))
    _assemble(home, look, source, len(blocks))


def _path(home: Path, i: int) -> Path:
    return home / f"part-{i:06d}.npz"


def _assemble(home: Path, look: Look, source: Source, count: int) -> None:
    paths = [_path(home, i) for i in range(count)]
    listings = [read_arrays(path, LISTED) for path in paths]
    numbers, bad, reasons = (
        np.concatenate([listing[name] for listing in listings]) for name in LISTED
    )
    if not len(numbers):
        pairs = zip(bad[:5].tolist(), reasons.tolist(), strict=False)
        first = "".join(f"\n  {source.name(number)}: {reason}" for number, reason in pairs)
        raise Failure(f"none of the {len(bad)} pictures can be decoded; the first:{first}")

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            write_header(file, (len(numbers), look.width), np.dtype(look.number))
            for path in paths:
                file.write(read_arrays(path, ["features"])["features"].tobytes())

    write_whole(home / "features.npy", write)
    listing = dict(zip(LISTED, (numbers, bad, reasons), strict=True))
    write_whole(home / "pictures.npz", lambda temporary: save(temporary, listing))
    for path in paths:
        path.unlink()


def _read_listing(home: Path) -> dict[str, NDArray[Any]] | None:
    try:
        listing = read_arrays(home / "pictures.npz", LISTED)
        rows = np.load(home / "features.npy", mmap_mode="r").shape[0]
    except DAMAGED:
        return None
    return listing if rows == len(listing["numbers"]) else None


def _open(home: Path, source: Source) -> Embedded:
    listing = _read_listing(home)
    assert listing is not None
    pairs = zip(listing["bad"].tolist(), listing["reasons"].tolist(), strict=True)
    skipped = [(source.name(number), reason) for number, reason in pairs]
    # Copy-on-write, because torch has no read-only tensors.
    features = np.load(home / "features.npy", mmap_mode="c")
    return Embedded(source, features, listing["numbers"], skipped)
