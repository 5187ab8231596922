"""The command line: one verb a capability. What a verb needs is imported when it is called."""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from wessl._version import __version__
from wessl.errors import UserError


def help_text() -> str:
    lines = [
        "wessl: image encoders from unlabelled pictures, by a weighted ensemble of heads.",
        "",
        "usage: wessl VERB [...]      wessl VERB --help explains one",
        "",
        *(f"  {name:<10} {line}" for name, line in VERBS.items()),
        "",
        "  --version  print the version",
        "  --help     print this",
    ]
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> NoReturn:
    """Exit code 0 for success, 2 for a user's mistake, 1 for a failure of ours."""
    words = list(sys.argv[1:] if words is None else words)
    # Threads that spin while they wait make a small step twenty times slower beside a busy core.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if not words or words[0] in ("-h", "--help", "help"):
        print(help_text())
        sys.exit(0)
    if words[0] in ("-V", "--version"):
        print(f"wessl {__version__}")
        sys.exit(0)
    if words[0] not in VERBS:
        fail(f"unknown verb {words[0]!r}; choose one of {', '.join(VERBS)}")
    try:
        import_module(f"wessl.verbs.{words[0]}").command(words[1:])
    except UserError as error:
        fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)


def fail(message: str) -> NoReturn:
    print(f"wessl: {message}", file=sys.stderr)
    sys.exit(2)


VERBS = {
    "demo": "learn from built-in pictures and show what was learnt (minutes, no GPU)",
    "pretrain": "train an encoder on a folder of pictures",
}
"""Each verb's one line. What it does is ``command`` in ``wessl/verbs/VERB.py``."""
