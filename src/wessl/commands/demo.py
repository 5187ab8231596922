"""What ``wessl demo`` takes."""

from dataclasses import dataclass

from wessl.commands.reading import read


@dataclass(frozen=True)
class Demo:
    """Learn from 1,297 handwritten digits without their labels, then test with few labels.

    Trains one head and sixteen from several seeds, and compares them with raw pixels and an
    untrained encoder on 500 other digits. Run it again to see the table at once.
    """

    out: str = "runs/demo"
    """Folder for the runs."""
    epochs: float = 24
    """Passes over the pictures."""
    seeds: int = 3
    """How often each method is trained."""
    draws: int = 30
    """How often the few labelled pictures are drawn."""
    head_width: int = 8
    """Numbers in which a head describes a picture. Narrow heads make one head short of room, and
    sixteen not; of 64, one is nearly as good on digits as sixteen."""


def parse(words: list[str]) -> Demo:
    return read(Demo, words, "demo")
