"""What the shells read: verbs and flags in the words of bash, zsh and fish."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from wessl.commands.completion import SHELLS, Shell
from wessl.errors import UserError


@dataclass(frozen=True)
class Verb:
    """What can follow a verb: its flags, each with its values (none: a file or free text)."""

    name: str
    line: str
    flags: dict[str, tuple[str, ...]]
    words: tuple[str, ...] = ()
    """What its first word can be, beside a file."""

    @property
    def offered(self) -> tuple[str, ...]:
        """Its flags but for the single letters, which are quicker typed than completed."""
        return tuple(flag for flag in self.flags if flag.startswith("--"))


def write(shell: Shell, every: list[Verb]) -> str:
    if shell not in SHELLS:
        raise UserError(f"no completion for {shell!r}; there is one for {', '.join(SHELLS)}")
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](every)


def _bash(every: list[Verb]) -> str:
    # compgen without mapfile and compopt if it is missing: macOS still has bash 3.2.
    return f"""\
# wessl's words for bash. Put into ~/.bashrc:  source <(wessl completion bash)
_wessl() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" verb="${{COMP_WORDS[1]}}" words="" IFS=$' \\t\\n'
  COMPREPLY=()
  if (( COMP_CWORD == 1 )); then
    COMPREPLY=($(compgen -W {_line([v.name for v in every])} -- "$word"))
    return
  fi
  case "$verb:${{COMP_WORDS[COMP_CWORD-1]}}" in
{_cases(every, "words={}")}
  esac
  if [[ -z $words && $word == -* ]]; then
    case "$verb" in
{_flag_cases(every, "words={}")}
    esac
  fi
  if [[ -n $words ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$word"))
    return
  fi
  compopt -o filenames 2>/dev/null
  IFS=$'\\n'
  COMPREPLY=($(compgen -f -- "$word"))
  if (( COMP_CWORD == 2 )); then
    IFS=$' \\t\\n'
    case "$verb" in
{_word_cases(every, 'COMPREPLY+=($(compgen -W {} -- "$word"))')}
    esac
  fi
}}
complete -F _wessl wessl
"""


def _zsh(every: list[Verb]) -> str:
    described = "\n".join(f"    {shlex.quote(f'{v.name}:{v.line}')}" for v in every)
    return f"""\
#compdef wessl
# wessl's words for zsh. Put into ~/.zshrc after compinit:  source <(wessl completion zsh)
_wessl() {{
  local -a verbs=(
{described}
  )
  if (( CURRENT == 2 )); then
    _describe verb verbs
    return
  fi
  case "$words[2]:$words[CURRENT-1]" in
{_cases(every, "compadd -- {}; return", quoted=False)}
  esac
  if [[ $words[CURRENT] == -* ]]; then
    case "$words[2]" in
{_flag_cases(every, "compadd -- {}; return", quoted=False)}
    esac
  fi
  if (( CURRENT == 3 )); then
    case "$words[2]" in
{_word_cases(every, "compadd -- {}", quoted=False)}
    esac
  fi
  _files
}}
compdef _wessl wessl
"""


def _fish(every: list[Verb]) -> str:
    lines = [
        "# wessl's words for fish: wessl completion fish > ~/.config/fish/completions/wessl.fish",
        "complete -c wessl -n __fish_use_subcommand -f",
    ]
    for verb in every:
        about = f"-a {verb.name} -d {_fish_quote(verb.line)}"
        lines.append(f"complete -c wessl -n __fish_use_subcommand {about}")
        here = f"complete -c wessl -n '__fish_seen_subcommand_from {verb.name}'"
        if verb.words:
            lines.append(f"{here} -a {_fish_quote(' '.join(verb.words))}")
        for flag in verb.offered:
            values = verb.flags[flag]
            given = f" -x -a {_fish_quote(' '.join(values))}" if values else ""
            lines.append(f"{here} -l {flag.removeprefix('--')}{given}")
    return "\n".join(lines) + "\n"


def _cases(every: list[Verb], do: str, quoted: bool = True) -> str:
    """A branch for each flag with known values: they follow it, and nothing else does."""
    return "\n".join(
        f"    {verb.name}:{flag}) {do.format(_line(values, quoted))} ;;"
        for verb in every
        for flag, values in verb.flags.items()
        if values
    )


def _flag_cases(every: list[Verb], do: str, quoted: bool = True) -> str:
    return "\n".join(f"      {v.name}) {do.format(_line(v.offered, quoted))} ;;" for v in every)


def _word_cases(every: list[Verb], do: str, quoted: bool = True) -> str:
    return "\n".join(
        f"      {v.name}) {do.format(_line(v.words, quoted))} ;;" for v in every if v.words
    )


def _line(words: Sequence[str], quoted: bool = True) -> str:
    line = " ".join(words)
    return f'"{line}"' if quoted else line


def _fish_quote(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
