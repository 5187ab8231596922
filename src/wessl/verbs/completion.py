"""``wessl completion``: a script that lets a shell complete verbs, flags, values and file names.

The flags are read from each verb's own ``--help``, so they cannot differ from what it takes.
"""

import contextlib
import functools
import io
import os
import re
from collections.abc import Iterator
from importlib import import_module

from wessl.cli import VERBS
from wessl.commands.completion import SHELLS, Completion, Shell
from wessl.config import WEIGHTINGS
from wessl.recipes import FAMILIES, names
from wessl.study.studies import STUDIES
from wessl.verbs.completion_scripts import Verb, write

_FLAG = re.compile(r"(?:^|, )(--?[A-Za-z][\w.-]*)")
_CHOICES = re.compile(r"\{([^{}]*)\}(?!\|)")  # {None}|INT is no closed list


def verbs() -> list[Verb]:
    """Every verb with what its ``--help`` says it takes."""
    return [Verb(name, line, flags_of(name), _WORDS.get(name, ())) for name, line in VERBS.items()]


@functools.cache
def flags_of(verb: str) -> dict[str, tuple[str, ...]]:
    """Each flag of a verb, and the values it is limited to.

    >>> flags_of("pretrain")["--decode"]
    ('auto', 'once', 'stream')
    """
    flags: dict[str, tuple[str, ...]] = {_EVERY[verb]: ()} if verb in _EVERY else {}
    for line in help_of(verb).splitlines():
        head = line.strip("│ ").partition("  ")[0]  # flags and values, without what they mean
        if not head.startswith("-"):
            continue
        limited = _CHOICES.search(head)
        values = tuple(limited[1].split(",")) if limited else ()
        for flag in _FLAG.findall(head):
            flags.setdefault(flag, _VALUES.get(flag, values))
    return flags


def help_of(verb: str) -> str:
    """What ``wessl VERB --help`` prints in one column, wide enough that no flag is broken."""
    said = io.StringIO()
    with _wide(), contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        import_module(f"wessl.commands.{verb}").parse([_EVERY.get(verb, "--help")])
    return re.sub(r"\x1b\[[0-9;]*m", "", said.getvalue())


@contextlib.contextmanager
def _wide() -> Iterator[None]:
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "120"
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def script(shell: Shell) -> str:
    """The script for a shell, to be read by it at its start."""
    return write(shell, verbs())


_EVERY = {"pretrain": "--help-all"}
"""Of a verb with more flags than its ``--help`` tells, what tells all."""
_VALUES: dict[str, tuple[str, ...]] = {
    "--recipe": ("auto", *FAMILIES, *names()),
    "--loss.weighting": WEIGHTINGS,
    "--device": ("auto", "cpu", "cuda"),
}
"""Of flags whose help names no closed list."""
_WORDS: dict[str, tuple[str, ...]] = {"study": ("list", *STUDIES), "completion": SHELLS}


def command(asked: Completion) -> None:
    print(script(asked.shell), end="")
