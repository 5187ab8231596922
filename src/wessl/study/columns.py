"""What is measured of every run: the columns of a study's table."""

from collections.abc import Sequence
from dataclasses import dataclass

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
    of: tuple[str, ...] = ()
    """Columns whose mean it is; none for one that is measured."""

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
        mean = (Column("mean", of=tuple(transfer)),) if transfer[1:] else ()
        return (*map(Column, transfer), *mean)
    accuracies = tuple(Column(name) for name in protocols)
    return (*DIVERSITY, *accuracies) if kind == "diversity" else accuracies
