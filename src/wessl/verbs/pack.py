"""``wessl.pack`` and ``wessl pack``: any pictures into tar shards that are quick to read."""

import sys
from dataclasses import dataclass
from pathlib import Path

from wessl.commands.pack import Pack, check_numbers
from wessl.data.packing.folder import SKIPPED, Request
from wessl.data.packing.pack import pack_source
from wessl.data.pictures import gigabytes
from wessl.data.sources.open import open_source
from wessl.evaluate.features.progress import bar


@dataclass(frozen=True)
class Packed:
    """What ``wessl.pack`` wrote."""

    path: Path
    """The folder; its ``shard-*.tar`` are DATA for every verb, and so is the folder itself."""
    pictures: int
    shards: int
    bytes: int
    skipped: tuple[tuple[str, str], ...]
    """Names of pictures that cannot be decoded, and why."""


def pack(
    data: str | Path,
    out: str | Path,
    short_side: int | None = 256,
    quality: int = 90,
    per_shard: int = 4096,
    shuffle: bool = True,
    workers: int | None = None,
    max_bad: int | float = 0.05,
    cache: str | Path | None = None,
    quiet: bool = True,
) -> Packed:
    """Writes the pictures of ``data`` into tar shards in the WebDataset layout.

    A picture whose shorter side is longer than ``short_side`` is shrunk, and written as JPEG of
    this ``quality`` if it was JPEG or WebP, else without loss; every other keeps its bytes. Shards
    of ``per_shard`` pictures hold them in random order (``shuffle=False``: in that of ``data``),
    with labels and names. Each shard is read again and compared before it gets its name. The same
    call goes on after a kill, and does nothing when all is done::

        packed = wessl.pack("photos/", "shards/", short_side=256)
        wessl.pretrain(packed.path, "runs/photos")
    """
    check_numbers(short_side, quality, per_shard, workers)
    source = open_source(data, directory=cache)
    if source.note and not quiet:
        print(source.note, file=sys.stderr)
    path = Path(out).expanduser()
    request = Request(
        source.location, source.fingerprint, len(source), short_side, quality, per_shard, shuffle
    )
    with bar("packing", quiet) as progress:
        skipped = pack_source(source, path, request, workers, max_bad, progress)
    shards = sorted(path.glob("shard-*.tar"))
    size = sum(shard.stat().st_size for shard in shards)
    return Packed(path, len(source) - len(skipped), len(shards), size, tuple(skipped))


def tell(packed: Packed) -> None:
    size = gigabytes(packed.bytes)
    shards = f"{packed.shards:,} shard" + "s" * (packed.shards != 1)
    print(f"{packed.pictures:,} pictures in {shards}, {size}: {packed.path}")
    if packed.skipped:
        some = "; ".join(f"{name}: {reason}" for name, reason in packed.skipped[:5])
        more = f"; and {len(packed.skipped) - 5} more" * (len(packed.skipped) > 5)
        listed = packed.path / SKIPPED
        print(f"{len(packed.skipped):,} unreadable, listed in {listed} ({some}{more})")


def command(asked: Pack) -> None:
    tell(pack(**vars(asked), quiet=False))
