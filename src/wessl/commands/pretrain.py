"""What ``wessl pretrain`` takes: its own flags, and settings on top of a recipe."""

from dataclasses import dataclass, field
from typing import Annotated, NamedTuple

import tyro

from wessl import recipes
from wessl.commands.paths import refuse_missing_data, refuse_missing_weights
from wessl.commands.pretrain_help import family_of, show_all, show_few
from wessl.config import Config, Options


@dataclass(frozen=True)
class Pretrain:
    """Train an encoder on unlabelled pictures. The same command again resumes."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """A folder, a list of paths, an .npz, tar shards or their URLs, hf://name, or builtin://digits."""
    out: str
    """The run folder to write."""
    recipe: str = "auto"
    """auto; a method sized to the data (dino-star-ent); or as published (.../vits16)."""
    budget: str | None = None
    """Time to fit in, such as 20m or 2h; the start and the report come on top."""
    epochs: float | None = None
    """Passes over the pictures; short for --optim.epochs."""
    running: tyro.conf.OmitArgPrefixes[Options] = field(default_factory=Options)


class Asked(NamedTuple):
    """The verb's own flags, and the words that are settings of the recipe's config."""

    pretrain: Pretrain
    settings: list[str]

    def change(self, config: Config) -> Config:
        """A recipe with the settings on top."""
        prog = "wessl pretrain DATA --out RUN"
        return tyro.cli(Config, args=self.settings, default=config, prog=prog)


def parse(words: list[str]) -> Asked:
    if "--help-all" in words:
        show_all(Pretrain, words)
    if any(word in ("-h", "--help") for word in words):
        show_few()
    asked, rest = tyro.cli(Pretrain, args=words, prog="wessl pretrain", return_unknown_args=True)
    if asked.epochs is not None:
        rest = ["--optim.epochs", str(asked.epochs), *rest]
    refuse_unknown(asked.recipe, rest)
    refuse_missing_data(asked.data, asked.running.probe)
    if asked.running.init is not None:
        refuse_missing_weights(asked.running.init)
    return Asked(asked, rest)


def refuse_unknown(recipe: str, settings: list[str]) -> None:
    """Stops at a recipe or setting that there is not, before there are pictures to size it for.

    How many kinds of views there are depends on the pictures, so those flags wait.
    """
    config = recipes.recipe(family_of(recipe))
    prog = "wessl pretrain DATA --out RUN"
    _, unknown = tyro.cli(
        Config, args=settings, default=config, prog=prog, return_unknown_args=True
    )
    if any(word.startswith("-") and not word.startswith("--views.") for word in unknown):
        tyro.cli(Config, args=settings, default=config, prog=prog)
