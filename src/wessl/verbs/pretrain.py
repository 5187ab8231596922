"""``wessl.pretrain`` and ``wessl pretrain``: from pictures to a run folder with an encoder."""

import contextlib
import dataclasses
import shlex
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import torch

from wessl import plan
from wessl.allocator import memory_kept
from wessl.commands.budget import seconds
from wessl.commands.pretrain import Asked
from wessl.commands.reading import grouped
from wessl.config import Config, Options
from wessl.data.cache.cache import PictureCache
from wessl.data.pictures import Decode, Pictures
from wessl.data.sources.open import open_source
from wessl.errors import UserError
from wessl.plan import Plan
from wessl.pretrain.console import Console
from wessl.pretrain.loop import train
from wessl.pretrain.onlooker import Onlooker
from wessl.pretrain.parallel import ALONE, Team
from wessl.report.finding import finding_words
from wessl.report.story import read
from wessl.run import Run, describe_encoder
from wessl.settings import from_dict, full_name, override
from wessl.track.report import tracked
from wessl.verbs.launching import launch, launched
from wessl.verbs.pretraining import checks, resume
from wessl.verbs.pretraining.begin import build_trainer, decode_pictures, say_pictures, say_resumed
from wessl.verbs.pretraining.budget_watch import watched
from wessl.verbs.pretraining.header import describe_data, describe_run
from wessl.verbs.pretraining.launch_checks import refuse_in_vain
from wessl.verbs.pretraining.probe import make_probe, open_probe, probe_source
from wessl.verbs.pretraining.same_pictures import refuse_other_pictures
from wessl.verbs.pretraining.start import Start, find_start

State = dict[str, Any]
Change = Callable[[Config], Config]


def pretrain(
    data: str | Path,
    out: str | Path,
    recipe: str = "auto",
    budget: str | float | None = None,
    quiet: bool = False,
    **overrides: Any,
) -> Run:
    """Trains an encoder on unlabelled pictures; the same call again resumes.

    ``data`` is a folder, a list of paths, an ``.npz`` or ``builtin://digits``; ``out`` the run
    folder. ``overrides`` are settings of the config (``epochs=20``, ``seed=1``; where a name is not
    unique, ``**{"encoder.depth": 6}``) or options (``device="cpu"``)::

        run = wessl.pretrain("photos/", "runs/photos", budget="20m")
        encoder = wessl.load(run.path)
    """
    overrides = {k: str(v) if isinstance(v, Path) else v for k, v in overrides.items()}
    names = {field.name for field in dataclasses.fields(Options)}
    options = from_dict(Options, {k: v for k, v in overrides.items() if k in names}, "options")
    changes = {k: v for k, v in overrides.items() if k not in names}
    request = dict(recipe=recipe, budget=budget, changes={k: repr(v) for k, v in changes.items()})

    def change(config: Config) -> Config:
        return override(config, changes)

    if (processes := launch.wanted(options)) > 1:
        refuse_in_vain(processes, data, options, request, change)
        call = dict(data=data, out=out, recipe=recipe, budget=budget, quiet=quiet, **overrides)
        launch.run_call(options, out, call)
        return Run(out)
    with launched.joined(options) as (team, device):
        console = Console(quiet or not team.first)
        named = {full_name(name) for name in changes}
        return pretrain_with(data, out, options, request, change, console, team, device, named)


def pretrain_with(
    data: str | Path,
    out: str | Path,
    options: Options,
    request: State,
    change: Change,
    console: Console,
    team: Team = ALONE,
    device: torch.device | None = None,
    named: Collection[str] = (),
) -> Run:
    """What ``pretrain`` and its command share; ``change`` puts the user's settings on a recipe.

    ``named`` are the settings a person gave, by their full names; a study has its reasons for its.
    Nothing is written to ``out`` before it is locked and all that could be wrong was tried. Of a
    team the first process alone decides, writes and speaks.
    """
    with contextlib.ExitStack() as held:
        held.callback(console.close)
        where = device or plan.find_device(options.device)
        run = Run(out) if team.first else Onlooker(out)
        start: Start | None = None

        def settle() -> tuple[Plan, Decode | None, State | None]:
            nonlocal start
            start = find_start(
                data, run, options, request, change, console, where, team, held, named
            )
            return start.settled

        planned, decode, old = team.first_does(settle)
        if decode is None:
            if team.first and not resume.is_drawn(run):
                draw(run, data, None, options, where, console)
            return run
        config = planned.config
        source, probed = team.together(
            lambda: (
                (start.source, start.probed)
                if start is not None
                else (
                    open_source(data, config.channels, options.cache),
                    probe_source(options, config.channels),
                )
            )
        )
        refuse_other_pictures(team, source, probed)
        pictures = team.in_turn(lambda: decode_pictures(source, decode, config, options, console))
        header = team.first_does(
            lambda: find_header(old, planned, options, request, pictures, where, out, start)
        )
        mean, std = header["normalisation"]["mean"], header["normalisation"]["std"]
        describe = describe_encoder(config, mean, std)
        init, state = team.share(None if start is None else (start.init, start.state))
        with (
            checks.enough_memory(config, where),
            memory_kept(where.type == "cpu"),
        ):
            trainer = build_trainer(config, options, pictures, where, (mean, std), init, team)
            labelled = team.in_turn(lambda: open_probe(probed, pictures, config, options, console))
            probe = make_probe(labelled, describe, team)
            team.first_does(lambda: create(run, header, start, held))
            if team.first:
                if not resume.is_finished(run):  # else what its last start said still stands
                    run.log(f"start: {shlex.join(sys.argv)}")
                console.log_to(run)
            say_pictures(pictures, trainer, console, run)
            if state is not None:
                trainer.load_state(state)
                say_resumed(trainer.step, trainer.steps, out, console)
            if trainer.compiled and trainer.step < trainer.steps:
                console.doing("compiling the step: a minute or two")
            tracking = tracked(console, options.track, run, header, trainer.step, console.say)
            drawn = trainer.step == trainer.steps and resume.is_drawn(run)
            budget = seconds(request["budget"]) if state is None else None
            with tracking as report:
                report = watched(report, budget, console.say)
                train(trainer, run, report, probe, lambda: describe, console.tick)
        if team.first and not drawn:
            draw(run, data, pictures.cache, options, where, console)
    return run


def draw(
    run: Run,
    data: str | Path,
    cache: PictureCache | None,
    options: Options,
    device: torch.device,
    console: Console,
) -> None:
    from wessl.verbs.pretraining.illustrate import (
        after_training,  # drawing takes a second to import
    )

    console.doing("drawing the report")
    after_training(run, data, cache, options.cache, str(device), console.say)


def find_header(
    old: State | None,
    planned: Plan,
    options: Options,
    request: State,
    pictures: Pictures,
    device: torch.device,
    out: str | Path,
    start: Start | None,
) -> State:
    """What made the run: as it was begun, if these are the pictures it was begun on."""
    described = describe_data(pictures)
    if old is not None:
        resume.refuse_other_data(old, described, out)
        return old
    begun_from = resume.describe_init(options.init)
    header = describe_run(planned, options, request, described, pictures, begun_from, device)
    made_for = None if start is None else start.normalisation
    return header if made_for is None else header | dict(normalisation=made_for)


def create(run: Run, header: State, start: Start | None, held: contextlib.ExitStack) -> None:
    """Locks the folder of a new run, unless another command was quicker, and begins it."""
    assert start is not None
    if not start.found:
        held.enter_context(run.locked())
        if run.exists:
            raise UserError(
                f"{run.path} was begun by another command meanwhile; give this one again to go on "
                "with it, or choose another --out"
            )
    if start.state is None:
        Run.create(run.path, header)


def command(words: Asked) -> None:
    asked = words.pretrain
    request = dict(recipe=asked.recipe, budget=asked.budget, changes=words.settings)
    options = asked.running
    if (processes := launch.wanted(options)) > 1:
        refuse_in_vain(processes, asked.data, options, request, words.change)
        launch.run_command(options, asked.out)
        return
    with launched.joined(options) as (team, device):
        console = Console(quiet=not team.first)
        named = {flag.lstrip("-").replace("-", "_") for flag, _ in grouped(words.settings)}
        run = pretrain_with(
            asked.data, asked.out, options, request, words.change, console, team, device, named
        )
        if not team.first:
            return
    print(f"found:   {finding_words(read([run.path]))}")
    print(f"encoder: {run.path / 'encoder.safetensors'}")
    print(f"report:  {run.path / 'report.html'}")
    print(f"next:    wessl evaluate {run.path} --train LABELLED --test LABELLED")
