"""What is asked of a study, and what that comes to: cells, seeds, runs and their folders."""

import dataclasses
import hashlib
import json
import statistics
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from wessl import plan
from wessl.auto import DataFacts
from wessl.config import WEIGHTINGS, Config, Options
from wessl.errors import UserError
from wessl.evaluate.settings import Settings
from wessl.pretrain.model import build_model
from wessl.run import Run
from wessl.settings import full_name, override, to_dict
from wessl.study.cell import Cell, Size, Study, refuse_strangers
from wessl.study.columns import Column
from wessl.study.cost import Measuring
from wessl.study.data import Data
from wessl.study.record import read_measured
from wessl.study.sizes import resolve
from wessl.verbs.pretraining import checks

State = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A study, its size, its pictures, and what the user wants otherwise."""

    study: Study
    size: Size
    data: Data
    out: Path
    seeds: tuple[int, ...]
    only: tuple[str, ...] = ()
    """Names of cells, as in the table; none for all."""
    protocols: tuple[str, ...] = ()
    """None for the size's, as far as the labels allow."""
    transfer: tuple[str, ...] = ()
    epochs: float | None = None
    settings: State = field(default_factory=dict)
    """Of every cell, unless the cell itself changes them."""
    options: State = field(default_factory=dict)
    """Of ``pretrain``: device, cache, compile ..."""
    draws: int | None = None
    slim: bool = False
    command: str = ""
    """What the user typed, for the records."""


@dataclass(frozen=True)
class Item:
    """A cell with its config, its seed aside."""

    cell: Cell
    name: str
    config: Config
    key: str

    @property
    def x(self) -> float | None:
        if self.cell.x == "parameters":
            return float(head_parameters(self.config))
        return self.cell.x

    def folder(self, runs: Path, seed: int) -> Path:
        return runs / f"{self.key}-seed{seed}"


@dataclass(frozen=True)
class Planned:
    """All that a study will do."""

    asked: Asked
    items: list[Item]
    """The cells asked for."""
    every: list[Item]
    """All cells the study has."""
    columns: tuple[Column, ...]
    facts: DataFacts
    fingerprint: str
    """Of the training pictures."""
    record: str
    """Name of the measurements in a run's ``results/``: one for each way and set of files."""
    settings: Settings
    measuring: Measuring | None
    """What that takes; None where training itself is measured."""

    @property
    def fresh(self) -> bool:
        """Whether every run has a process of its own: time and memory are measured in one, and one
        that has compiled several models refuses to compile more."""
        return self.facts.device == "cuda" or self.asked.study.kind == "overhead"

    @property
    def runs(self) -> Path:
        """Beside the studies, because studies share them."""
        return self.asked.out.parent / "runs"

    def folder(self, item: Item, seed: int) -> Path:
        return item.folder(self.runs, seed)

    def read(self, folder: Path) -> State:
        """What is measured of a run, and the means of it that are columns."""
        found = read_measured(Run(folder), self.record)
        for column in self.columns:
            if column.of and found.keys() >= set(column.of):
                mean = statistics.fmean(found[name]["value"] for name in column.of)
                found[column.name] = dict(value=mean)
        return found

    def job(self, item: Item, seed: int) -> State:
        """What a worker is told, as JSON knows it."""
        asked = self.asked
        return dict(
            name=f"{item.name}, seed {seed}",
            command=asked.command,
            folder=str(self.folder(item, seed)),
            kind=asked.study.kind,
            train=asked.data.train,
            test=asked.data.test,
            config=to_dict(replace(item.config, seed=seed)),
            # k-NN on the way is nobody's result here, and would be a third of a short run.
            options=asked.options | dict(probe_every=max(1.0, item.config.optim.epochs / 4)),
            columns=[column.name for column in self.columns if not column.of],
            transfer=list(asked.transfer),
            settings=dataclasses.asdict(self.settings),
            record=self.record,
            fingerprint=self.fingerprint,
            slim=asked.slim,
            steps=asked.size.overhead_steps,
        )


def make_items(asked: Asked, facts: DataFacts, device: torch.device, data: str) -> list[Item]:
    items, timed = [], asked.study.kind == "overhead"
    cells = asked.study.cells(asked.size)
    refuse_settings(asked, cells)
    names = {cell.name for cell in cells}
    if strangers := [cell for cell in cells if cell.base not in (None, *names)]:
        pairs = ", ".join(f"{cell.name!r} with {cell.base!r}" for cell in strangers)
        raise ValueError(f"study {asked.study.name} compares {pairs}, which it does not have")
    for cell in cells:
        epochs = asked.epochs
        common = dict(asked.study.common)
        if timed:
            wanted = override(override(Config(), common), asked.settings).optim.batch_size
            common["optim.batch_size"] = min(wanted, facts.pictures)
            epochs = asked.size.overhead_steps / (facts.pictures // common["optim.batch_size"])
        config = resolve(cell, asked.size, facts, asked.settings, epochs, common)
        config = plan.suited(config, [], device, lambda same: same).config
        checks.check(config, Options(), facts.pictures)
        name = cell.name.format(m=config.heads.count, c=config.heads.codes)
        items.append(Item(cell, name, config, make_key(config, data, timed)))
    return items


def refuse_settings(asked: Asked, cells: list[Cell]) -> None:
    """Those that would change nothing, or that a study has a flag of its own for."""
    for name, value in asked.settings.items():
        full = full_name(name)
        if full == "optim.epochs":
            raise UserError("--epochs sets the length of a study's runs, so that schedules follow")
        if full == "seed":
            raise UserError("--seeds names the seeds of a study's runs, as --seeds 3..3 or 3 4")
        if all(full in cell.changes for cell in cells):
            raise UserError(
                f"--set {name} would change nothing: every cell of {asked.study.name} has its own "
                f"{full}; `wessl pretrain` trains with any"
            )
        if full == "loss.weighting" and value not in WEIGHTINGS:
            raise UserError(
                f"--set {name}={value}: choose one of {', '.join(WEIGHTINGS)}; one of your own is "
                "not known to a study's runs, which are processes of their own"
            )


def chosen(items: list[Item], only: tuple[str, ...]) -> list[Item]:
    """Those named, and those they are compared with; all where none is named."""
    refuse_strangers(only, [item.name for item in items])
    wanted = [item for item in items if item.name in only or not only]
    kept = {cell for item in wanted for cell in (item.cell.name, item.cell.base)}
    return [item for item in items if item.cell.name in kept]


def make_key(config: Config, data: str, timed: bool) -> str:
    """Equal for equal configs on equal pictures, whatever study, recipe or folder they are of."""
    same = {k: v for k, v in to_dict(config).items() if k not in ("recipe", "seed")}
    if not config.loss.weighs_me_max(config.heads.count):
        del same["loss"]["me_max_heads"]  # so was it before there was a choice
    content = json.dumps([_numbers(same), data, timed], sort_keys=True)
    method = config.loss.weighting if config.heads.count > 1 else "one"
    prefix = "timed-" if timed else ""
    found = hashlib.sha256(content.encode()).hexdigest()[:10]
    return f"{prefix}{method}-m{config.heads.count}-c{config.heads.codes}-{found}"


def _numbers(value: Any) -> Any:
    """3 epochs and 3.0 are the same."""
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_numbers(item) for item in value]
    whole = isinstance(value, float) and value.is_integer()
    return int(value) if whole else value


def head_parameters(config: Config) -> int:
    """Of all projection heads and codebooks."""
    with torch.device("meta"):
        heads = build_model(config).heads
    return sum(parameter.numel() for parameter in heads.parameters())
