"""What ``wessl evaluate`` takes."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

import tyro

from wessl.commands.paths import refuse_missing_data, refuse_missing_weights
from wessl.commands.reading import read
from wessl.evaluate.settings import Settings
from wessl.evaluate.spelling import settle_all


@dataclass(frozen=True)
class Evaluate:
    """Measure encoders with few labels, many and other datasets; each number with its protocol."""

    run: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folders or weights files; several are compared with the first."""
    train: str | None = None
    """Labelled pictures to learn from: class folders, or any DATA with labels."""
    test: str | None = None
    """Labelled pictures to be tested on; without them, a fifth of --train."""
    protocols: tuple[str, ...] = ()
    """1-shot (or any n), 1% (any share), k-NN, linear, linear-fast. Default: what suits --train."""
    transfer: tuple[str, ...] = ()
    """Other labelled datasets: food101:PATH, pets:PATH, ..., or a folder with train/ and test/."""
    also: tuple[str, ...] = ()
    """Other weights in the same table: ours, or of DINO, MSN, DINOv2, timm, Hugging Face."""
    splits: tuple[str, ...] = ()
    """Published lists of labelled pictures (files, or a folder of them), instead of draws."""
    baselines: bool = True
    """Raw pixels and an untrained encoder in the same table."""
    again: bool = False
    """Measure all anew; decoded pictures are reused, unless a file's name, size or time changed."""
    network: Literal["teacher", "student"] = "teacher"
    """Which of a run's two networks."""
    image_size: int | None = None
    """Side of the pictures all encoders are shown, instead of what each was trained for."""
    device: str = "auto"
    """auto (all GPUs there are), cpu, cuda or cuda:1."""
    cache: str | None = None
    """Where decoded pictures are kept."""
    max_bad: float = 0.5
    """Pictures that may fail to decode: a share, or above 1 a number."""
    measured: tyro.conf.OmitArgPrefixes[Settings] = field(default_factory=Settings)


def parse(words: list[str]) -> Evaluate:
    asked = read(Evaluate, words, "evaluate")
    asked.measured.check()
    settle_all(asked.protocols)
    refuse_missing_weights(*asked.run)
    refuse_missing_weights(*asked.also, flag="--also")
    refuse_missing_data(train=asked.train, test=asked.test)
    return asked
