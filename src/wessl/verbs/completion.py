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
from typing import Annotated

import tyro

from wessl.cli import VERBS
from wessl.ensemble.weighting import SCHEMES
from wessl.recipes import FAMILIES, names
from wessl.study.studies import STUDIES
from wessl.verbs.completion_scripts import SHELLS, Shell, Verb, write

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
    flags: dict[str, tuple[str, ...]] = {}
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
        import_module(f"wessl.verbs.{verb}").command(["--help"])
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


_VALUES: dict[str, tuple[str, ...]] = {
    "--recipe": ("auto", *FAMILIES, *names()),
    "--loss.weighting": tuple(SCHEMES),
    "--device": ("auto", "cpu", "cuda"),
}
"""Of flags whose help names no closed list."""
_WORDS: dict[str, tuple[str, ...]] = {"study": ("list", *STUDIES), "completion": SHELLS}


def command(words: list[str]) -> None:
    def parse(
        shell: Annotated[Shell, tyro.conf.Positional, tyro.conf.arg(metavar="bash|zsh|fish")],
    ) -> None:
        """Print a script with which a shell completes verbs, flags, values and file names.

        For bash, `source <(wessl completion bash)` in ~/.bashrc; for zsh the same with zsh, after
        compinit, in ~/.zshrc; for fish, `wessl completion fish >
        ~/.config/fish/completions/wessl.fish`. A file that keeps the script starts the shell
        sooner; write it again after an update.

        Args:
            shell: bash, zsh or fish.
        """
        print(script(shell), end="")

    tyro.cli(parse, args=words, prog="wessl completion")
