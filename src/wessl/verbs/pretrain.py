"""``wessl.pretrain`` and ``wessl pretrain``: from pictures to a run folder with an encoder."""

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from wessl import plan
from wessl.auto import Choice, DataFacts
from wessl.config import Config, Options, from_dict, override
from wessl.data.pictures import Decode, choose_decode
from wessl.data.sources import Source, open_source
from wessl.plan import Plan
from wessl.pretrain.console import Console
from wessl.pretrain.loop import train
from wessl.run import Run, describe_encoder
from wessl.verbs import checks, resume
from wessl.verbs.begin import build_trainer, decode_pictures, load_init, say_pictures, say_resumed
from wessl.verbs.header import describe_data, describe_run
from wessl.verbs.illustrate import after_training
from wessl.verbs.pretrain_help import show_help
from wessl.verbs.probe import make_probe, open_probe, probe_source

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
    names = {field.name for field in dataclasses.fields(Options)}
    options = from_dict(Options, {k: v for k, v in overrides.items() if k in names}, "options")
    changes = {k: v for k, v in overrides.items() if k not in names}
    request = dict(recipe=recipe, budget=budget, changes={k: repr(v) for k, v in changes.items()})
    return pretrain_with(
        data, out, options, request, lambda config: override(config, changes), Console(quiet)
    )


def pretrain_with(
    data: str | Path,
    out: str | Path,
    options: Options,
    request: State,
    change: Change,
    console: Console,
) -> Run:
    """What ``pretrain`` and its command share; ``change`` puts the user's settings on a recipe.

    Nothing is written to ``out`` before it is locked and all that could be wrong was tried.
    """
    with contextlib.ExitStack() as held:
        held.callback(console.close)
        device = plan.find_device(options.device)
        source = open_source(data, directory=options.cache)
        run = Run(out)
        state = find_state(run, device, console, held)
        old = run.read_config() if state is not None else None
        planned = settle(old, request, source, device, change, options, out)
        config = planned.config
        init, start = load_init(options.init if state is None else None)
        checks.check(config, options, len(source), init)
        if config.channels != source.channels:
            source = open_source(data, config.channels, options.cache)
        probed = probe_source(options, config.channels)
        decode, planned = choose_way(planned, source, device, options)
        if state is None and planned.choices:
            console.say(plan.table(planned.choices, config))
        if start is not None:
            console.say(start)
        checks.warn(config, source, device, console)
        pictures = decode_pictures(source, decode, config, options, console)
        described = describe_data(pictures)
        if old is not None:
            resume.refuse_other_data(old["data"], described, out)
            header = old
        else:
            begun_from = resume.describe_init(options.init)
            header = describe_run(
                planned, options, request, described, pictures, begun_from, device
            )
        mean, std = header["normalisation"]["mean"], header["normalisation"]["std"]
        with checks.enough_memory(config, device):
            trainer = build_trainer(config, options, pictures, device, (mean, std), init)
            describe = describe_encoder(config, mean, std)
            probe = make_probe(open_probe(probed, pictures, config, options, console), describe)
            if not run.exists:
                held.enter_context(run.locked())
            if state is None:
                Run.create(out, header)
            console.log_to(run)
            say_pictures(pictures, trainer, console, run)
            if state is not None:
                trainer.load_state(state)
                say_resumed(trainer, out, console)
            if trainer.compiled and trainer.step < trainer.steps:
                console.doing("compiling the step: a minute or two")
            train(trainer, run, console, probe, lambda: describe, console.tick)
        console.doing("drawing the report")
        after_training(run, data, pictures.cache, options.cache, str(device), console.say)
    return run


def find_state(
    run: Run, device: torch.device, console: Console, held: contextlib.ExitStack
) -> State | None:
    """The newest checkpoint of a run that was begun, locked from now on; None for a new one."""
    checks.refuse_unwritable(run.path)
    if not run.exists:
        return None
    held.enter_context(run.locked())
    # Without a whole checkpoint the folder may begin anew.
    state = run.load_checkpoint(device, console.say)
    resume.refuse_to_overwrite(run, state)
    return state


def settle(
    old: State | None,
    request: State,
    source: Source,
    device: torch.device,
    change: Change,
    options: Options,
    out: str | Path,
) -> Plan:
    """The run's own config if it goes on with the same request, else what is asked for now."""
    if old is None:
        return plan.choose(request, source, device, change)
    if old["request"] == request:
        planned = Plan(from_dict(Config, old["config"]), [])
    else:
        facts = from_dict(DataFacts, old["facts"]) if old.get("facts") else None
        planned = plan.choose(request, source, device, change, facts)
        resume.refuse_changes(old["config"], planned.config, out)
    resume.refuse_other_init(old["init"], options.init, out)
    return planned


def choose_way(
    planned: Plan, source: Source, device: torch.device, options: Options
) -> tuple[Decode, Plan]:
    """How to decode, and the plan with all that was chosen of running it."""
    choices = [*planned.choices, *plan.of_running(options, device)]
    if options.decode != "auto":
        return options.decode, replace(planned, choices=choices)
    decode, why = choose_decode(source, planned.config.short_side, options.cache)
    choices.append(Choice("decode", decode, why, warning=decode == "stream"))
    return decode, replace(planned, choices=choices)


@dataclass(frozen=True)
class Pretrain:
    """Train an encoder on unlabelled pictures. The same command again resumes."""

    data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """A folder of pictures, a text file of paths, an .npz, or builtin://digits."""
    out: str
    """The run folder to write."""
    recipe: str = "auto"
    """auto; a method sized to the data (dino-star-ent); or as published (.../vits16)."""
    budget: str | None = None
    """Time to fit in, such as 20m or 2h; the start and the report come on top."""
    epochs: float | None = None
    """Passes over the pictures; short for --optim.epochs."""
    running: tyro.conf.OmitArgPrefixes[Options] = field(default_factory=Options)


def command(words: list[str]) -> None:
    """Two passes over the words: first which recipe and data, then settings on top of it."""
    if any(word in ("-h", "--help") for word in words):
        show_help(Pretrain, words)
    asked, rest = tyro.cli(Pretrain, args=words, prog="wessl pretrain", return_unknown_args=True)

    def change(config: Config) -> Config:
        return tyro.cli(Config, args=rest, default=config, prog="wessl pretrain DATA --out RUN")

    if asked.epochs is not None:
        rest = ["--optim.epochs", str(asked.epochs), *rest]
    request = dict(recipe=asked.recipe, budget=asked.budget, changes=rest)
    run = pretrain_with(asked.data, asked.out, asked.running, request, change, Console())
    print(f"encoder: {run.path / 'encoder.safetensors'}")
    print(f"report:  {run.path / 'report.html'}")
    print(f"next:    wessl evaluate {run.path} --train LABELLED --test LABELLED")
