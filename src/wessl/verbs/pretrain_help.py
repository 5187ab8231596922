"""``wessl pretrain --help``: the verb's flags, then every setting with a recipe's values."""

import contextlib
import dataclasses
import sys
from dataclasses import make_dataclass
from typing import Any, NoReturn

import tyro

from wessl.config import Config
from wessl.recipes import FAMILIES, names, recipe, unknown


def show_help(verb: Any, words: list[str]) -> NoReturn:
    asked = asked_recipe(words)
    family = "dino-star-ent" if asked == "auto" else asked.removesuffix("/auto")
    if family not in (*FAMILIES, *names()):
        raise unknown(asked, [*FAMILIES, *names(), "auto"])
    shown = recipe(family)
    settings = make_dataclass(
        "Settings",
        [(f.name, f.type, f) for f in dataclasses.fields(Config) if f.name != "recipe"],
    )
    settings.__doc__ = f"Settings on top of the recipe. Shown are the values of {shown.recipe}"
    if family in names():
        settings.__doc__ += "."
    else:
        settings.__doc__ += (
            f", from which --recipe {asked} starts; it sizes many of them to your pictures and "
            "device, and prints each with its reason. --recipe NAME --help shows another's."
        )
    values = settings(**{f.name: getattr(shown, f.name) for f in dataclasses.fields(settings)})
    with contextlib.suppress(SystemExit):
        tyro.cli(verb, args=["--help"], prog="wessl pretrain")
    tyro.cli(settings, args=["--help"], prog="wessl pretrain DATA --out RUN", default=values)
    sys.exit(0)


def asked_recipe(words: list[str]) -> str:
    """
    >>> asked_recipe(["photos/", "--recipe", "msn/vitb16", "--help"])
    'msn/vitb16'
    """
    for i, word in enumerate(words):
        if word.startswith("--recipe="):
            return word.removeprefix("--recipe=")
        if word == "--recipe" and i + 1 < len(words) and not words[i + 1].startswith("-"):
            return words[i + 1]
    return "auto"
