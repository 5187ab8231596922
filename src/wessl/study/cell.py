"""What a study is made of: cells, each a recipe with what the study changes about it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from wessl.errors import UserError
from wessl.recipes import Size as Architecture
from wessl.study.paper import Row

Kind = Literal["accuracy", "transfer", "diversity", "overhead"]


@dataclass(frozen=True)
class Share:
    """A value in proportion to the one the size has chosen: ``Share(1 / 4)`` of its codes."""

    of: float

    def settle(self, chosen: int) -> int:
        return max(2, round(chosen * self.of))


@dataclass(frozen=True)
class AtLeast:
    """The value the size has chosen, or this one where that is less."""

    least: int

    def settle(self, chosen: int) -> int:
        return max(self.least, chosen)


@dataclass(frozen=True)
class Cell:
    """One row of a table."""

    name: str
    """Unique in its study; ``{m}`` and ``{c}`` stand for its heads and codes."""
    recipe: str
    """A family of recipes: ``dino-star-ent``."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings in which it differs from the recipe, by their full names."""
    base: str | None = None
    """The cell it is compared with."""
    series: str = ""
    """Cells of one line in the figure."""
    x: float | Literal["parameters"] | None = None
    """Its place in the figure, where the grid runs over a number; or the heads' parameters."""
    paper: Row = field(default_factory=dict)
    epochs: float | None = None
    """At size ``paper``, where it differs from the recipe's."""
    architecture: Architecture = "vits16"
    """At size ``paper``."""
    published: bool = False
    """As published, 224 pixels and all, whatever the size: for measuring time and memory."""


@dataclass(frozen=True)
class Size:
    """How large a study is: what its grids run over, and how long each run is."""

    name: Literal["smoke", "small", "paper"]
    line: str
    heads: tuple[int, ...]
    """Numbers of heads of `heads`, the largest also of `projection`."""
    msn_heads: tuple[int, ...]
    gammas: tuple[float, ...]
    msn_gammas: tuple[float, ...]
    depths: tuple[int, ...]
    widths: tuple[int, ...]
    temperatures: tuple[float, ...]
    """Of the teacher, in `collapse`."""
    seeds: int
    protocols: tuple[str, ...]
    overhead_steps: int
    draws: int | None = None
    """Of the few labels; None for the evaluation's own choice."""


@dataclass(frozen=True)
class Axis:
    """The number a grid runs over."""

    label: str
    log: bool = True


@dataclass(frozen=True)
class Note:
    """A sentence below a table; ``{b}`` and ``{c}`` stand for its first cell's batch and codes."""

    words: str
    cells: tuple[str, ...] = ()
    """Cells it speaks of, by name or by a part of it; without any of them it is left out."""
    of_paper: bool = False
    """Left out where no number of the paper stands in the table."""


@dataclass(frozen=True)
class Study:
    """A named grid."""

    name: str
    line: str
    """What it asks, in a line."""
    cells: Callable[[Size], list[Cell]]
    setting: str
    """What the paper's numbers beside ours were measured on."""
    spread: str = ""
    """What ± is in them."""
    axis: Axis | None = None
    kind: Kind = "accuracy"
    common: Mapping[str, Any] = field(default_factory=dict)
    """Settings of all its cells."""
    best_of: Mapping[str, Row] = field(default_factory=dict)
    """The paper's numbers of a series as a whole: those of its best cell."""
    notes: tuple[Note, ...] = ()


def refuse_strangers(only: Sequence[str], names: Sequence[str]) -> None:
    """Stops at a cell that no name can be; ``{m}`` and ``{c}`` in one stand for any numbers."""
    patterns = [re.sub(r"\\{[mc]\\}", r"\\d+", re.escape(name)) for name in names]
    for cell in only:
        if not any(re.fullmatch(pattern, cell) for pattern in patterns):
            known = ", ".join(map(repr, names))
            known += "; write numbers for {m}, its heads, and {c}, its codes" * ("{" in known)
            raise UserError(f"--only {cell!r} is no cell of the study; it has {known}")
