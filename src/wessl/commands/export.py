"""What ``wessl export`` takes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from wessl.commands.paths import refuse_missing_weights
from wessl.commands.reading import read
from wessl.export.choices import Format
from wessl.export.target import check_target, find_target


@dataclass(frozen=True)
class Export:
    """Write a run's encoder for timm, Hugging Face transformers or ONNX, with a model card."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder, or a file of weights."""
    to: Format
    """The format: timm and hf (Hugging Face) for transformers, onnx for every encoder."""
    out: Annotated[str | None, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")] = None
    """The folder to write; default: export/FORMAT in the run folder."""
    overwrite: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Replace an earlier export there, its card included."""
    normalise: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Normalise inside the ONNX graph, which then takes pixels from 0 to 1."""


def parse(words: list[str]) -> Export:
    asked = read(Export, words, "export")
    refuse_missing_weights(asked.run)
    folder = find_target(Path(asked.run), asked.to, asked.out, asked.normalise)
    check_target(folder, asked.overwrite)
    return asked
