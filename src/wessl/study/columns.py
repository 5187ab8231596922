"""What is measured of every run: the columns of a study's table."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from wessl.errors import UserError
from wessl.study.cell import Kind
from wessl.study.paper import SAME_AS


@dataclass(frozen=True)
class Column:
    """A number of every run, and how it is shown."""

    name: str
    unit: str = "%"
    factor: float = 100.0
    """From the measured number to the shown one."""
    relative: bool = False
    """Whether differences are in per cent of the base instead of points."""
    digits: int = 1

    @property
    def in_paper(self) -> str:
        """Under which name the paper has it."""
        return SAME_AS.get(self.name, self.name)

    @property
    def title(self) -> str:
        return self.name if self.unit in ("%", "") else f"{self.name}, {self.unit}"

    @property
    def difference_unit(self) -> str:
        return "%" if self.relative else "points" if self.unit == "%" else self.unit


OVERHEAD = (
    Column("time", "ms a step", 1.0, relative=True),
    Column("memory", "GB", 1.0, relative=True, digits=2),
)
DIVERSITY = (
    Column("diversity", "", 1.0, digits=3),
    Column("before alignment", "", 1.0, digits=3),
)


def columns(kind: Kind, protocols: Sequence[str], transfer: Sequence[str]) -> tuple[Column, ...]:
    if kind == "overhead":
        return OVERHEAD
    if kind == "transfer":
        return tuple(Column(name) for name in (*transfer, *(("mean",) if transfer[1:] else ())))
    accuracies = tuple(Column(name) for name in protocols)
    return (*DIVERSITY, *accuracies) if kind == "diversity" else accuracies


def check_protocols(names: Sequence[str], has_test: bool) -> None:
    for name in names:
        known = name in ("k-NN", "linear", "linear-fast")
        if not known and not re.fullmatch(r"[1-9]\d*-shot|\d+(\.\d+)?%", name):
            raise UserError(
                f"--protocols {name!r} is unknown; choose from 1-shot (any number), 1% (any share),"
                " k-NN, linear, linear-fast"
            )
    if "linear" in names and not has_test:
        raise UserError("--protocols linear needs --test pictures of their own; or linear-fast")
