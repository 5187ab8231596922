"""What ``wessl completion`` takes."""

from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from wessl.commands.reading import read

Shell = Literal["bash", "zsh", "fish"]
SHELLS: tuple[Shell, ...] = ("bash", "zsh", "fish")


@dataclass(frozen=True)
class Completion:
    """Print a script with which a shell completes verbs, flags, values and file names.

    For bash, `source <(wessl completion bash)` in ~/.bashrc; for zsh the same with zsh, after
    compinit, in ~/.zshrc; for fish, `wessl completion fish >
    ~/.config/fish/completions/wessl.fish`. A file that keeps the script starts the shell
    sooner; write it again after an update.
    """

    shell: Annotated[Shell, tyro.conf.Positional, tyro.conf.arg(metavar="bash|zsh|fish")]
    """bash, zsh or fish."""


def parse(words: list[str]) -> Completion:
    return read(Completion, words, "completion")
