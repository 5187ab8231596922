"""What ``wessl study`` takes."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import tyro

from wessl.commands.paths import refuse_missing_data
from wessl.commands.reading import read
from wessl.errors import UserError
from wessl.evaluate.spelling import settle_all
from wessl.study.cell import refuse_strangers
from wessl.study.sizes import SIZES
from wessl.study.studies import STUDIES, known


@dataclass(frozen=True)
class Study:
    """Run one of the paper's studies and write its table and figure. The same command resumes."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """Which study; `list` explains each in a line."""
    data: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = None
    """A folder with train/ and test/ (or val/), or labelled DATA; smoke takes builtin://digits."""
    size: Literal["smoke", "small", "paper"] = "smoke"
    """smoke: minutes on a CPU; small: minutes a run on one GPU; paper: ImageNet, as published."""
    seeds: Annotated[tuple[str, ...], tyro.conf.arg(metavar="N|A..B ...")] = ()
    """How many (7), or which (0 2 5, 1..4, 3..3 for one). Default: 1 at smoke, else 3."""
    only: tuple[str, ...] = ()
    """Some of its cells alone, named as in the table; what they are compared with comes along."""
    protocols: tuple[str, ...] = ()
    """1-shot (any n), 1% (any share), k-NN, linear, linear-fast. Default: the size's."""
    epochs: float | None = None
    """Length of every run; schedules follow. Default: the size's."""
    train: str | None = None
    """Labelled pictures to learn from, instead of DATA; their labels serve the measuring alone."""
    test: str | None = None
    """Labelled pictures to be tested on; without them, a fifth of --train."""
    transfer: tuple[str, ...] = ()
    """Of the study transfer: food101:PATH, pets:PATH, ..., or a folder with train/ and test/."""
    out: str | None = None
    """Folder for table and figure; runs lie in runs/ beside it. Default: studies/NAME."""
    set: tuple[str, ...] = ()
    """Settings of every cell, such as encoder.size=S optim.batch_size=128."""
    draws: int | None = None
    """Draws of the few labels. Default: 30, at smoke 10."""
    parallel: int | None = None
    """Runs at a time. Default: --per-device times the GPUs, or one a core."""
    per_device: int = 1
    """Runs side by side on one GPU; small ones gain from 2 to 4."""
    retry: bool = False
    """Try failed runs again."""
    slim: bool = False
    """Delete checkpoints and features of a run once it is measured, its heads' diversity too."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""
    cache: str | None = None
    """Where decoded pictures are kept."""
    compile: Literal["auto", "on", "off"] = "auto"
    """torch.compile, as in wessl pretrain."""


def parse(words: list[str]) -> Study:
    asked = read(Study, words, "study")
    if asked.name != "list":
        cells = known("study", asked.name, STUDIES).cells(SIZES[asked.size])
        refuse_strangers(asked.only, [cell.name for cell in cells])
    read_seeds(asked.seeds)
    asked = replace(asked, protocols=settle_all(asked.protocols))
    refuse_missing_data(asked.data, train=asked.train, test=asked.test)
    return asked


def read_seeds(words: tuple[str, ...]) -> int | tuple[int, ...] | None:
    """One number is how many; a range, which has both its ends, or several words are which.

    >>> read_seeds(("7",)), read_seeds(("3..3",)), read_seeds(("0", "2..4"))
    (7, (3,), (0, 2, 3, 4))
    """
    found: list[int] = []
    for word in words:
        first, dots, last = word.partition("..")
        try:
            low, high = int(first), int(last if dots else first)
        except ValueError:
            raise UserError(
                f"--seeds must be whole numbers or a range as 1..4, not {word!r}"
            ) from None
        if low > high:
            raise UserError(f"--seeds {word} is empty; write {high}..{low}")
        found += range(low, high + 1)
    if len(words) == 1 and ".." not in words[0]:
        return found[0]
    return tuple(found) or None
