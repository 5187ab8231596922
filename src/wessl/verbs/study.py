"""``wessl.study`` and ``wessl study``: the paper's tables and figures, on any pictures."""

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from wessl.errors import Failure, UserError
from wessl.study.run import run_study
from wessl.study.sizes import SIZES
from wessl.study.studies import STUDIES
from wessl.study.terminal import print_list

study = run_study


@dataclass(frozen=True)
class Words:
    """Run one of the paper's studies and write its table and figure. The same command resumes."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """Which study; `list` explains each in a line."""
    data: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")] = None
    """A folder with train/ and test/ (or val/), or labelled DATA; smoke takes builtin://digits."""
    size: Literal["smoke", "small", "paper"] = "smoke"
    """smoke: minutes on a CPU; small: minutes a run on one GPU; paper: ImageNet, as published."""
    seeds: tuple[int, ...] = ()
    """How many, or several by name. Default: 1 at smoke, else 3. Later, more run only the new."""
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


def command(words: list[str]) -> None:
    asked = vars(tyro.cli(Words, args=words, prog="wessl study"))
    name, seeds = asked.pop("name"), asked.pop("seeds")
    if name == "list":
        print_list(STUDIES, SIZES)
        return
    how_many: Any = None if not seeds else seeds[0] if len(seeds) == 1 else seeds
    found = study(name, seeds=how_many, settings=read_settings(asked.pop("set")), **asked)
    out = asked["out"] or f"studies/{name}"
    print(f"table: {out}/table.md, figure: {out}/figure.svg")
    refuse_failed(found)


def read_settings(words: tuple[str, ...]) -> dict[str, Any]:
    """``encoder.size=S`` and the like; numbers, true, false and null as in JSON."""
    settings = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UserError(f"--set {word!r} is no setting; write NAME=VALUE, as encoder.size=S")
        try:
            settings[name.replace("-", "_")] = json.loads(value)
        except ValueError:
            settings[name.replace("-", "_")] = value
    return settings


def refuse_failed(found: dict[str, Any]) -> None:
    """A run that diverged is a result; one that failed otherwise is a failure."""
    failed = [
        f"{row['name']}, seed {seed}: {failure['error']}"
        for row in found["rows"]
        for seed, failure in row["failures"].items()
        if not failure["diverged"]
    ]
    if failed:
        count = "1 run" if len(failed) == 1 else f"{len(failed)} runs"
        raise Failure("\n".join([f"{count} failed; --retry tries again", *failed]))
