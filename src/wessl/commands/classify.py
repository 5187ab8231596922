"""What ``wessl classify`` takes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from wessl.commands.paths import refuse_missing_data, refuse_missing_weights
from wessl.commands.reading import read
from wessl.errors import UserError
from wessl.export.choices import Read
from wessl.export.out import check_out


@dataclass(frozen=True)
class Classify:
    """Guess the label of every other picture from a handful of labelled ones."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder, or a weights file."""
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """A folder, a list of paths, an .npz, tar shards or their URLs, hf://name, or builtin://digits."""
    labels: str
    """A csv of path,label, a folder of class folders, or other DATA with labels."""
    out: Annotated[str, tyro.conf.arg(aliases=["-o"])]
    """The csv to write: path, label, confidence, the second guess, what to label next."""
    classes: tuple[str, ...] = ()
    """All classes there are: another label is then refused, and a class without one."""
    suggest: int = 10
    """How many pictures to name as most worth a label."""
    reading: Read = "cls"
    """The [CLS] token, the mean patch token, or both joined."""
    image_size: int | None = None
    """Side of the pictures the encoder is shown, instead of the one it was trained for."""
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Replace the csv, if it exists."""
    device: str = "auto"
    """auto (a GPU if there is one), cpu, cuda or cuda:1."""
    batch_size: int = 256
    """Pictures through the encoder at once."""
    workers: int | None = None
    """Processes that decode pictures; default: one a core, at most 16."""
    cache: str | None = None
    """Where the listing of a large folder is kept."""


def parse(words: list[str]) -> Classify:
    asked = read(Classify, words, "classify")
    refuse_missing_weights(asked.run)
    refuse_missing_data(asked.data, labels=asked.labels)
    check_out(Path(asked.out).expanduser(), (".csv",), asked.overwrite)
    if asked.suggest < 0:
        raise UserError(f"--suggest must be 0 or more, not {asked.suggest}")
    return asked
