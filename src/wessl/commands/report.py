"""What ``wessl report`` takes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from wessl.commands.reading import read
from wessl.errors import UserError


@dataclass(frozen=True)
class Report:
    """Write one self-contained page about a run, or about several compared with the first."""

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN...")]
    """Run folders; give several to compare them."""
    out: Annotated[str | None, tyro.conf.arg(aliases=["-o"])] = None
    """The page to write; default: report.html in the run folder, or beside the runs."""


def parse(words: list[str]) -> Report:
    asked = read(Report, words, "report")
    for path in asked.runs:
        if not Path(path).exists():
            raise UserError(f"{path} does not exist; give the run folder of a `wessl pretrain`")
    return asked
