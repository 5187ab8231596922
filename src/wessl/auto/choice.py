"""What the automatic recipe is told, and what it answers."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True)
class DataFacts:
    """What ``small`` needs to know about the pictures and the device."""

    pictures: int
    height: int
    """Of a typical picture, in pixels."""
    width: int
    channels: int
    device: Literal["cpu", "cuda"]
    memory_bytes: int
    """What the device has to give."""
    cpu_bf16: bool = False
    """Whether the device is a CPU with instructions for bf16 products."""
    cores: int = 1
    """Of a CPU, that share the work."""
    speed: float = 1.0
    """Of a GPU, in products of large matrices, beside the one whose rate of training is known."""

    @property
    def short_side(self) -> int:
        return min(self.height, self.width)

    @property
    def grey_drawings(self) -> bool:
        """Digits, letters and the like; where a wrong guess costs little, for they are small."""
        return self.channels == 1 and self.short_side <= 32


@dataclass(frozen=True)
class Choice:
    """A setting that was chosen for the user, and why."""

    setting: str
    """As in a flag, ``optim.batch_size``; ``views`` stands for all of them."""
    value: Any
    reason: str
    warning: bool = False
    """Whether the pictures or the device forbade what the recipe would have wanted."""
