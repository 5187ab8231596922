"""What ``wessl pretrain`` takes: its own flags, and settings on top of a recipe."""

import dataclasses
import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import tyro

from wessl import recipes
from wessl.commands.budget import seconds
from wessl.commands.flags import flags_of
from wessl.commands.out_folder import refuse_out
from wessl.commands.paths import refuse_missing_data, refuse_missing_weights
from wessl.commands.pretrain_help import family_of, show_all, show_few
from wessl.commands.reading import grouped, plain, read, read_some
from wessl.config import Config, Options
from wessl.errors import UserError
from wessl.settings import check_ranges
from wessl.track.installed import refuse_missing


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
        return read(Config, self.settings, "pretrain", config)


def parse(words: list[str]) -> Asked:
    if "--help-all" in words:
        show_all(Pretrain, words)
    if any(word in ("-h", "--help") for word in words):
        show_few()
    asked, rest = read_some(Pretrain, words, "pretrain")
    if asked.epochs is not None:
        rest = ["--optim.epochs", str(asked.epochs), *rest]
    seconds(asked.budget)
    check_ranges(asked.running)
    check_ranges(on_recipe(asked.recipe, rest))
    refuse_missing_data(asked.data, probe=asked.running.probe)
    refuse_missing(asked.running.track)
    if asked.running.init is not None:
        refuse_missing_weights(asked.running.init, flag="--init")
    refuse_out(Path(asked.out))
    return Asked(asked, rest)


def on_recipe(recipe: str, settings: list[str]) -> Config:
    """Stops at a recipe or setting that there is not, before there are pictures to size it for.

    How many kinds of views there are depends on the pictures, so their numbers wait.
    """
    config = recipes.recipe(family_of(recipe))
    changed, left = read_some(Config, settings, "pretrain", config)
    views = {numberless(flag.name) for flag in flags_of(Config, config)}
    for flag, values in grouped(left):
        if numberless(plain(flag)) in views:
            continue
        if flag:
            meant = " or ".join(meant_by(flag, config))
            asking = f"did you mean {meant}? " if meant else ""
            raise UserError(f"unknown flag {flag}; {asking}wessl pretrain --help-all lists them")
        raise UserError(
            f"{values[0]} is one word too many: wessl pretrain takes one DATA, which may be a "
            "folder above several"
        )
    return changed


def numberless(flag: str) -> str:
    """
    >>> numberless("--views.crops.1.size")
    '--views.crops.N.size'
    """
    return re.sub(r"\.\d+\.", ".N.", flag)


def meant_by(flag: str, config: Config) -> list[str]:
    """What is spelt alike: the verb's own flags first, then settings by the last of their names.

    >>> meant_by("--epoch", Config()), meant_by("--batchsize", Config())
    (['--epochs', '--optim.epochs'], ['--optim.batch-size'])
    """
    own = [f"--{name}" for name in (*names_in(Options()), "out", "recipe", "budget", "epochs")]
    settings = {f"--{name}": name.rpartition(".")[2] for name in names_in(config)}
    last = flag.lstrip("-").rpartition(".")[2].replace("_", "-")
    near = difflib.get_close_matches(last, settings.values(), 1, cutoff=0.8)
    alike = difflib.get_close_matches(flag, own, 1, cutoff=0.8)
    return [*alike, *(name for name, end in settings.items() if end in near)][:3]


def names_in(config: Any, prefix: str = "") -> Iterator[str]:
    """Its settings as flags write them, but for the views."""
    for one in dataclasses.fields(config):
        value, name = getattr(config, one.name), prefix + one.name.replace("_", "-")
        if one.name == "views":
            continue
        if dataclasses.is_dataclass(value):
            yield from names_in(value, f"{name}.")
        else:
            yield name
