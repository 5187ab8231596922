"""The run folder as all processes but the first have it: to look at."""

from pathlib import Path
from typing import Any

from torch import Tensor

from wessl.run import Run

State = dict[str, Any]


class Onlooker(Run):
    """A run folder that another process writes; whatever this one would, is not written twice."""

    def log(self, line: str) -> None:
        pass

    def add_metrics(self, row: State) -> None:
        pass

    def read_metrics(self) -> list[State]:
        """None: only who speaks needs to know what was said."""
        return []

    def save_checkpoint(self, step: int, state: State, keep: int) -> Path:
        return self.checkpoints

    def keep_newest_checkpoint(self) -> bool:
        return False

    def save_encoder(self, state: dict[str, Tensor], description: State) -> None:
        pass
