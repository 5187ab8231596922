"""What is set for every protocol: plain values, read before anything heavy is imported."""

import math
from dataclasses import dataclass
from typing import Literal

from wessl.errors import UserError

Precision = Literal["auto", "bf16", "fp32"]

CHOICES = {"select": ("val", "test"), "strength": ("mean", "sum"), "features": ("raw", "unit")}
"""What the protocols' settings of these names may be."""


@dataclass(frozen=True)
class Settings:
    """What the protocols have in common, written into every result."""

    select: Literal["val", "test"] = "val"
    """Where strengths, k and learning rates are chosen: val is labelled training pictures."""
    strength: Literal["mean", "sum"] = "mean"
    """Whether a strength weighs against the mean or the summed loss (few-shot, transfer)."""
    features: Literal["raw", "unit"] = "unit"
    """Features as they are, or each scaled to length 1 (few-shot, transfer)."""
    use_strength: float | None = None
    """One few-shot strength, instead of a choice."""
    draws: int | None = None
    """Draws of the few labels; without it 30, or the paper's 3 from 500 classes up."""
    seed: int = 0
    """Of the draws and of everything held out."""
    linear_epochs: int = 100
    """Of the linear protocols."""
    flip: bool = True
    """Mirrored crops in the linear protocol; no where left and right differ."""
    precision: Precision = "auto"
    """Of the encoder: bf16 on GPUs that have it, fp32 elsewhere."""

    def check(self) -> None:
        check_choices(select=self.select, strength=self.strength, features=self.features)
        if self.use_strength is not None and not 0 < self.use_strength < math.inf:
            raise UserError(f"--use-strength must be a number above 0, not {self.use_strength}")
        for flag, value in (("draws", self.draws), ("linear-epochs", self.linear_epochs)):
            if value is not None and value < 1:
                raise UserError(f"--{flag} must be 1 or more, not {value}")


def usual_draws(classes: int) -> int:
    """Of the few labels: the more classes there are, the less a draw matters."""
    return 30 if classes < 500 else 3


def check_choices(**given: str) -> None:
    """A misspelt setting must not quietly become another protocol."""
    for name, value in given.items():
        if value not in CHOICES[name]:
            raise UserError(f"{name} must be {' or '.join(CHOICES[name])}, not {value!r}")
