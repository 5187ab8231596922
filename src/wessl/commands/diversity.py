"""What ``wessl diversity`` takes."""

from dataclasses import dataclass
from typing import Annotated

import tyro

from wessl.commands.paths import refuse_missing_data, refuse_missing_weights
from wessl.commands.reading import read

PICTURES = 51_200
"""As many as in the paper."""


@dataclass(frozen=True)
class Diversity:
    """Compare the heads of a run: do they group pictures alike, up to the codes' numbering?"""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """The run folder; its newest checkpoint holds the heads."""
    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """A folder, a list of paths, an .npz, tar shards or their URLs, hf://name, or builtin://digits."""
    pictures: int = PICTURES
    """How many pictures to look at, at most; of more, a fixed random sample."""
    device: str = "auto"
    """cpu, cuda, cuda:1 ...; auto takes a GPU when there is one."""
    out: str | None = None
    """Another run folder for results/diversity.json; default: RUN."""
    cache: str | None = None
    """Where decoded pictures are kept."""


def parse(words: list[str]) -> Diversity:
    asked = read(Diversity, words, "diversity")
    refuse_missing_weights(asked.run)
    refuse_missing_data(asked.data)
    return asked
