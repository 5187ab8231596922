"""What a format tells of what it wrote: how to load it, and what to know."""

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Told:
    library: str
    """Who loads it, as model hubs call them."""
    load: Callable[[str], str]
    """Python that loads what lies in a folder, from the folder's path."""
    facts: list[str] = field(default_factory=list)
    """Sentences of ours, for the terminal and the card."""
    normalises: bool = False
    """Whether the model itself normalises pixels from 0 to 1."""


def under(folder: str, name: str) -> str:
    """
    >>> under(".", "model.onnx"), under("exports/onnx", "model.onnx")
    ('model.onnx', 'exports/onnx/model.onnx')
    """
    return name if folder == "." else f"{folder.rstrip('/')}/{name}"
