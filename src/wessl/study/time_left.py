"""How long a study still takes, by what its runs have done so far, those under way included."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from wessl.run import Run
from wessl.study import cost
from wessl.study.asked import Item, Planned
from wessl.study.record import is_trained

Runs = Mapping[Path, tuple[Item, int]]
"""By folder: equal cells of a study are one run."""


@dataclass(frozen=True)
class Load:
    """What a run is expected to take; of use only beside those of other runs."""

    training: float
    measuring: float

    def left(self, share: float) -> float:
        """When this share of its training is done."""
        return self.training * (1 - share) + self.measuring


class Remaining:
    """The work of some runs since now: another study may have trained some of them already."""

    def __init__(self, loads: Mapping[Path, Load], at_once: int):
        self.loads, self.at_once = loads, max(1, min(at_once, len(loads)))
        self.at_first = {folder: self._left(folder) for folder in loads}

    @classmethod
    def of(cls, planned: Planned, runs: Runs, at_once: int) -> "Remaining":
        facts, measuring = planned.facts, planned.measuring
        loads = {
            folder: Load(
                cost.seconds(item.config, facts, planned.asked.options.get("compile") != "off"),
                0.0 if measuring is None else measuring.seconds(item.config, facts),
            )
            for folder, (item, _) in runs.items()
        }
        return cls(loads, at_once)

    @property
    def share(self) -> float:
        """Of all that these runs take, what is to be done by whoever does them from now on."""
        whole = sum(load.left(0.0) for load in self.loads.values())
        return sum(self.at_first.values()) / whole if whole else 0.0

    def seconds(self, elapsed: float, ended: Set[Path], failed: Set[Path] = frozenset()) -> float:
        """With as many runs at a time; infinite where nothing is done yet to judge by.

        What failed has ended too, though not all of its work was done.
        """
        left = dict.fromkeys(ended - failed, 0.0)
        left |= {folder: self._left(folder) for folder in self.loads.keys() - left.keys()}
        done = sum(max(0.0, self.at_first[folder] - left[folder]) for folder in self.loads)
        to_do = [left[folder] for folder in self.loads.keys() - ended]
        if not to_do:
            return 0.0
        if not done:
            return float("inf")
        # A run goes no quicker when the places beside it fall empty.
        one = elapsed * self.at_once / done
        return one * max(sum(to_do) / min(self.at_once, len(to_do)), *to_do)

    def _left(self, folder: Path) -> float:
        return self.loads[folder].left(trained_share(Run(folder)))


def trained_share(run: Run) -> float:
    """Of a run's training, what is done by the last of its rows, from 0 to 1."""
    if is_trained(run):
        return 1.0
    rows = [row for row in run.read_metrics() if row.get("steps")]
    return min(1.0, rows[-1]["step"] / rows[-1]["steps"]) if rows else 0.0
