"""The command line: one verb a capability. What a verb needs is imported when it is called."""

import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple, NoReturn

from wessl._version import __version__
from wessl.errors import UserError


class Verb(NamedTuple):
    """Where a verb lives (``module:function``, taking the rest of the words), and its one line."""

    home: str
    line: str


VERBS: dict[str, Verb] = {}


def help_text() -> str:
    lines = [
        "wessl: image encoders from unlabelled pictures, by a weighted ensemble of heads.",
        "",
        "usage: wessl VERB [...]      wessl VERB --help explains one",
        "",
        *(f"  {name:<10} {verb.line}" for name, verb in VERBS.items()),
        *([""] if VERBS else []),
        "  --version  print the version",
        "  --help     print this",
    ]
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> NoReturn:
    """Exit code 0 for success, 2 for a user's mistake, 1 for a failure of ours."""
    words = list(sys.argv[1:] if words is None else words)
    if not words or words[0] in ("-h", "--help", "help"):
        print(help_text())
        sys.exit(0)
    if words[0] in ("-V", "--version"):
        print(f"wessl {__version__}")
        sys.exit(0)
    name, rest = words[0], words[1:]
    if name not in VERBS:
        fail(f"unknown verb {name!r}; choose one of {', '.join(VERBS) or '(none yet)'}")
    module, function = VERBS[name].home.split(":")
    run: Callable[[list[str]], None] = getattr(import_module(module), function)
    try:
        run(rest)
    except UserError as error:
        fail(str(error))
    sys.exit(0)


def fail(message: str) -> NoReturn:
    print(f"wessl: {message}", file=sys.stderr)
    sys.exit(2)
