"""``wessl.evaluate`` and ``wessl evaluate``: how good encoders are, and by which protocol."""

import dataclasses
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from wessl._version import versions
from wessl.commands.evaluate import Evaluate
from wessl.errors import UserError
from wessl.evaluate.settings import Settings
from wessl.evaluate.spelling import settle_all
from wessl.pretrain.parallel import Team
from wessl.run import Run
from wessl.verbs.evaluating.inputs import enter
from wessl.verbs.evaluating.task import on_one_task
from wessl.verbs.evaluating.transfer import on_other_sets, open_sets
from wessl.verbs.sharing import sharing

Record = dict[str, Any]
Paths = str | Path | Sequence[str | Path]


def evaluate(
    run: Paths,
    train: str | Path | None = None,
    test: str | Path | None = None,
    protocols: Sequence[str] | None = None,
    transfer: str | Path | Sequence[str | Path] = (),
    also: Paths = (),
    splits: Paths = (),
    baselines: bool = True,
    again: bool = False,
    network: Literal["teacher", "student"] = "teacher",
    image_size: int | None = None,
    device: str = "auto",
    cache: str | Path | None = None,
    max_bad: float = 0.5,
    quiet: bool = True,
    **settings: Any,
) -> Record:
    """Measures frozen encoders, one or several: run folders or weights files.

    ``train`` and ``test`` are labelled DATA; without ``test`` a stratified fifth of ``train`` is
    tested on. ``protocols`` are any of ``"1-shot"`` (any number), ``"1%"`` (any share), ``"k-NN"``,
    ``"linear"`` and ``"linear-fast"``; ``splits`` lists of labelled pictures instead of draws;
    ``transfer`` other labelled datasets. Encoders are shown pictures of the size they were trained
    for, or all of one ``image_size``. ``settings`` are those of ``evaluate.settings.Settings``.
    Returns plain values; what a run folder got is also written into its ``results/``, and not
    measured again from the same encoder, pictures and settings unless ``again``. Processes
    that ``torchrun`` started share the pictures out, and the first of them speaks and writes::

        found = wessl.evaluate("runs/photos", "photos/train", "photos/test")
        found["rows"][0]["results"]["5-shot"]["accuracy"]
    """
    known = {f.name for f in dataclasses.fields(Settings)}
    if unknown := sorted(settings.keys() - known):
        raise UserError(f"unknown setting {unknown[0]!r}; known are {', '.join(sorted(known))}")
    asked = Evaluate(
        run=_listed(run),
        train=None if train is None else str(train),
        test=None if test is None else str(test),
        protocols=_listed(protocols or ()),
        transfer=_listed(transfer),
        also=_listed(also),
        splits=_listed(splits),
        baselines=baselines,
        again=again,
        network=network,
        image_size=image_size,
        device=device,
        cache=None if cache is None else str(cache),
        max_bad=max_bad,
        measured=Settings(**settings),
    )
    return _evaluate(asked, quiet)


def _listed(given: Any) -> tuple[str, ...]:
    """One or several; a Run stands for its folder."""
    several = given if isinstance(given, (list, tuple)) else [given]
    return tuple(str(getattr(one, "path", one)) for one in several)


def _evaluate(asked: Evaluate, quiet: bool) -> Record:
    asked.measured.check()
    if asked.train is None and (
        asked.test or asked.protocols or asked.splits or not asked.transfer
    ):
        run = "" if asked.run else "a RUN to measure, and "
        raise UserError(
            f"give {run}--train (and --test) with labelled pictures, or --transfer datasets"
        )
    if asked.image_size is not None and asked.transfer:
        raise UserError(
            "--image-size is for --train and --test: --transfer has a size of its own by protocol; "
            "give them in two commands"
        )
    names = list(settle_all(asked.protocols))
    with sharing(asked.device) as (team, device):
        return _measure(asked, names, team, device, quiet or not team.first)


def _measure(
    asked: Evaluate, names: list[str], team: Team, device: torch.device, quiet: bool
) -> Record:
    notes: list[str] = []

    def say(words: str) -> None:
        notes.append(words)
        if not quiet:
            print(words, file=sys.stderr, flush=True)

    contestants = team.together(lambda: list(enter(asked, device, team, say, quiet)))
    about: Record = dict(
        format=1, command=shlex.join(sys.argv), versions=versions("torch"), notes=notes
    )
    record = dict(about)
    elsewhere = team.in_turn(lambda: open_sets(contestants, asked))
    of_encoders = about | dict(notes=list(notes))  # before anything is said of --train's pictures
    if asked.train is not None:
        record |= on_one_task(contestants, asked, names, about, team, say, quiet)
    if asked.transfer:
        record |= on_other_sets(contestants, elsewhere, asked, of_encoders, team, say, quiet)
    if not quiet and Run(asked.run[0]).exists:
        print(f"report: {Path(asked.run[0]) / 'report.html'}")
        runs = [path for path in asked.run if Run(path).exists]
        if len(runs) > 1:
            print(f"all on one page: wessl report {shlex.join(runs)}")
    return record


def command(asked: Evaluate) -> None:
    _evaluate(asked, quiet=False)
