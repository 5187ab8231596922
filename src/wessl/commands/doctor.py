"""What ``wessl doctor`` takes."""

from dataclasses import dataclass

from wessl.commands.reading import read


@dataclass(frozen=True)
class Doctor:
    """Print versions, devices, folders, what is missing and its remedy, and a speed check.

    Nothing is changed. The exit code is 0 whatever is found.
    """

    json: bool = False
    """Print everything as JSON instead."""
    speed: bool = True
    """Measure for some ten seconds how fast this machine trains, decodes and writes."""


def parse(words: list[str]) -> Doctor:
    return read(Doctor, words, "doctor")
