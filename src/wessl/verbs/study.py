"""``wessl.study`` and ``wessl study``: the paper's tables and figures, on any pictures."""

import json
from typing import Any

from wessl.commands.study import Study, read_seeds
from wessl.errors import Failure, UserError
from wessl.study.run import run_study
from wessl.study.sizes import SIZES
from wessl.study.studies import STUDIES
from wessl.study.terminal import print_list

study = run_study


def command(words: Study) -> None:
    asked = dict(vars(words))
    name, seeds = asked.pop("name"), read_seeds(asked.pop("seeds"))
    if name == "list":
        print_list(STUDIES, SIZES)
        return
    found = study(name, seeds=seeds, settings=read_settings(asked.pop("set")), **asked)
    out = asked["out"] or f"studies/{name}"
    print(f"table: {out}/table.md, figure: {out}/figure.svg")
    refuse_failed(found)


def read_settings(words: tuple[str, ...]) -> dict[str, Any]:
    """``encoder.size=S`` and the like; numbers, true, false and null as in JSON."""
    settings = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UserError(f"--set {word!r} is no setting; write NAME=VALUE, as encoder.size=S")
        try:
            settings[name.replace("-", "_")] = json.loads(value)
        except ValueError:
            settings[name.replace("-", "_")] = value
    return settings


def refuse_failed(found: dict[str, Any]) -> None:
    """A run that diverged is a result; one that failed otherwise is a failure."""
    failed = [
        (f"{row['name']}, seed {seed}: {failure['error']}", failure["only_if_asked"])
        for row in found["rows"]
        for seed, failure in row["failures"].items()
        if not failure["diverged"]
    ]
    if failed:
        count = "1 run" if len(failed) == 1 else f"{len(failed)} runs"
        again = (
            "--retry tries again" if any(if_asked for _, if_asked in failed) else "mend this first"
        )
        words = list(dict.fromkeys(words for words, _ in failed))
        raise Failure("\n".join([f"{count} failed; {again}:", *words]))
