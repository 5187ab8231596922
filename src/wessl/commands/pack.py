"""What ``wessl pack`` takes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from wessl.commands.paths import refuse_missing_data
from wessl.commands.reading import read
from wessl.data.packing.target import refuse_strange
from wessl.errors import UserError


@dataclass(frozen=True)
class Pack:
    """Write pictures into tar shards (WebDataset); the same command goes on after a kill."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """A folder, a list of paths, an .npz, tar shards or their URLs, hf://name, or builtin://digits."""
    out: Annotated[str, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")]
    """The folder for the shards: new, empty, or begun by the same command."""
    short_side: int | None = 256
    """Shrink pictures whose shorter side is longer; None: never. All others keep their bytes."""
    quality: int = 90
    """Of the JPEGs that are written because they were shrunk."""
    per_shard: int = 4096
    """Pictures in a shard."""
    shuffle: bool = True
    """In random order, as training needs them; else in the order of DATA."""
    workers: int | None = None
    """Processes that read, shrink and encode; default: one a core, at most 16."""
    max_bad: float = 0.05
    """Stop if more pictures cannot be read: a share up to 1, or a number of them."""
    cache: str | None = None
    """Where the listing of a large folder is kept."""


def parse(words: list[str]) -> Pack:
    asked = read(Pack, words, "pack")
    refuse_missing_data(asked.data)
    check_numbers(asked.short_side, asked.quality, asked.per_shard, asked.workers)
    refuse_strange(Path(asked.out).expanduser())
    return asked


def check_numbers(
    short_side: int | None, quality: int, per_shard: int, workers: int | None
) -> None:
    if short_side is not None and short_side < 1:
        raise UserError(f"--short-side must be 1 or more (None: never shrink), not {short_side}")
    if not 1 <= quality <= 100:
        raise UserError(f"--quality must be from 1 to 100, not {quality}")
    if per_shard < 1:
        raise UserError(f"--per-shard must be 1 or more, not {per_shard}")
    if workers is not None and workers < 0:
        raise UserError(f"--workers must be 0 or more, not {workers}")
