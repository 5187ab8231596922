"""What ``wessl bench`` takes."""

from dataclasses import dataclass

from wessl.commands.reading import read


@dataclass(frozen=True)
class Bench:
    """Measure training steps, views, loader and few-shot sweep on this machine.

    Each stands beside the plain way of doing the same; a ratio of 2 is twice as fast.
    """

    device: str = "auto"
    """cpu, cuda, cuda:1 ...; auto takes a GPU when there is one."""
    json: str | None = None
    """File to write every number to."""
    compare: str | None = None
    """Such a file of an earlier time: prints each number's ratio to it, marks 5 % worse."""
    only: tuple[str, ...] = ()
    """Parts with one of these words in their names: step, views, loader, few-shot, ViT ..."""
    quick: bool = False
    """Small sizes, seconds instead of minutes: to see that it works, not how fast."""


def parse(words: list[str]) -> Bench:
    return read(Bench, words, "bench")
