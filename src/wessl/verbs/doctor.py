"""``wessl doctor``: what is here, what is missing and its remedy, how fast it is, what to report.

It is for when something is broken, so nothing but the standard library and tyro is imported before
it is asked for, and what fails is said and passed over.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from wessl.commands.doctor import Doctor
from wessl.errors import pip_install
from wessl.verbs.diagnosis import facts
from wessl.verbs.diagnosis.rules import RULES

Record = dict[str, Any]

REPORT = """\
To report a fault, give all of the above, the command, and what it printed last; of a run also its
config.json, and the end of its train.log. They name folders of this machine: read before you send.
Is it slow? `wessl bench` measures for minutes what was looked at here for seconds."""


def examine(speed: bool = True) -> Record:
    """Everything ``wessl doctor`` prints, as plain values."""
    found: Record = {name: attempt(look) for name, look in facts.PARTS.items()}
    if speed:
        found["speed"] = attempt(facts.speed)
    found["remedies"] = remedies(found)
    return found


def attempt(look: Callable[[], Record]) -> Record:
    try:
        return look()
    except Exception as error:  # whatever is broken is what we are here to tell
        return {"error": f"{type(error).__name__}: {error}"}


def remedies(found: Record) -> list[str]:
    """What is missing or in the way, each with what to do about it."""
    broken = [f"{name}: {_broken(p['error'])}" for name, p in found.items() if "error" in p]
    wrong = [words for rule in RULES for words in _said(rule, found)]
    return [*broken, *wrong]


def _broken(error: str) -> str:
    importing = error.startswith(("ImportError", "ModuleNotFoundError"))
    remedy = (
        f"install the package anew: {pip_install('--force-reinstall NAME')}"
        if importing
        else ("report it, with all of this")
    )
    return f"{error}. Remedy: {remedy}"


def _said(rule: Callable[[Record], list[str]], found: Record) -> list[str]:
    try:
        return rule(found)
    except LookupError:  # the part it reads could not be examined, which is said already
        return []


def text(found: Record) -> str:
    """For people, and for pasting into a report."""
    lines = []
    for name, part in found.items():
        if name == "remedies":
            continue
        lines.append(name)
        part = {key.removesuffix("_bytes"): _of(key, value) for key, value in part.items()}
        wide = max((len(key) for key in part), default=0)
        for key, value in part.items():
            values = value if isinstance(value, list) else [value]
            lines += [
                f"  {'' if i else key:<{wide}}  {_plain(one)}" for i, one in enumerate(values)
            ]
    lines.append("missing or in the way" if found["remedies"] else "nothing is in the way")
    lines += [f"  - {words}" for words in found["remedies"]]
    return "\n".join([*lines, "", REPORT])


def _of(key: str, value: Any) -> Any:
    return f"{value / 2**30:,.1f} GiB" if key.endswith("_bytes") else value


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(one)}" for key, one in value.items())
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,.1f}" if isinstance(value, float) else str(value)


def command(asked: Doctor) -> None:
    if asked.speed:
        print("looking, and measuring for some ten seconds ...", file=sys.stderr, flush=True)
    found = examine(asked.speed)
    print(json.dumps(found, indent=2) if asked.json else text(found))
