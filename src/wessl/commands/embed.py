"""What ``wessl embed`` takes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from wessl.commands.paths import refuse_missing_data, refuse_missing_weights
from wessl.commands.reading import read
from wessl.errors import UserError
from wessl.export.choices import THRESHOLD, Read, check_threshold
from wessl.export.out import check_out


@dataclass(frozen=True)
class Embed:
    """Write the features of every picture into a file; the same command goes on after a kill."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder, or a weights file."""
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """A folder, a list of paths, an .npz, tar shards or their URLs, hf://name, or builtin://digits."""
    out: Annotated[str, tyro.conf.arg(aliases=["-o"])]
    """The file to write: .npz, .npy (with names beside it) or .parquet."""
    reading: Read = "cls"
    """The [CLS] token, the mean patch token, or both joined."""
    neighbours: int = 0
    """Add so many nearest other pictures to each, and their cosines."""
    duplicates: float | None = None
    """List pairs with this cosine or more in FILE.duplicates.csv; alone it means 0.99."""
    half: bool = False
    """float16 instead of float32: half the size."""
    image_size: int | None = None
    """Side of the pictures the encoder is shown, instead of the one it was trained for."""
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Replace FILE, if it exists, and what stands beside it."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda or cuda:1."""
    batch_size: int = 256
    """Pictures through the encoder at once."""
    workers: int | None = None
    """Processes that decode pictures; default: one a core, at most 16."""
    cache: str | None = None
    """Where the listing of a large folder is kept."""


def parse(words: list[str]) -> Embed:
    asked = read(Embed, bare_duplicates(words), "embed")
    refuse_missing_weights(asked.run)
    refuse_missing_data(asked.data)
    check_out(Path(asked.out).expanduser(), overwrite=asked.overwrite)
    check_numbers(asked.neighbours, asked.duplicates, asked.batch_size, workers=asked.workers)
    return asked


def check_numbers(
    neighbours: int,
    duplicates: float | None,
    batch_size: int,
    part: int = 1,
    workers: int | None = None,
) -> None:
    if neighbours < 0:
        raise UserError(f"--neighbours must be 0 or more, not {neighbours}")
    if duplicates is not None:
        check_threshold(duplicates)
    if batch_size < 1 or part < 1:
        raise UserError(f"--batch-size and parts must be 1 or more, not {batch_size} and {part}")
    if workers is not None and workers < 0:
        raise UserError(f"--workers must be 0 or more, not {workers}")


def bare_duplicates(words: list[str]) -> list[str]:
    """
    >>> bare_duplicates(["--duplicates", "--half", "--duplicates", "0.9"])
    ['--duplicates', '0.99', '--half', '--duplicates', '0.9']
    """
    given: list[str] = []
    for word, after in zip(words, [*words[1:], "--"], strict=True):
        given.append(word)
        if word == "--duplicates" and not after.replace(".", "").isdigit():
            given.append(str(THRESHOLD))
    return given
