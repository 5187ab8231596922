"""What is settled before anything is decoded: a run's state, its config, and how to decode."""

import contextlib
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wessl import plan
from wessl.auto import Choice, DataFacts
from wessl.commands.budget import seconds
from wessl.commands.out_folder import refuse_out
from wessl.config import Config, Options
from wessl.data.pictures import Decode, Pictures, choose_decode
from wessl.data.sources.open import Source, open_source
from wessl.errors import UserError
from wessl.plan import Plan
from wessl.pretrain.console import Console
from wessl.pretrain.parallel import Team
from wessl.pretrain.spread import describe_team
from wessl.run import Run
from wessl.settings import from_dict
from wessl.verbs.pretraining import checks, resume
from wessl.verbs.pretraining.begin import find_jpeg, say_resumed
from wessl.verbs.pretraining.disk import say_disk
from wessl.verbs.pretraining.header import describe_data
from wessl.verbs.pretraining.init import THEIRS, read_init
from wessl.verbs.pretraining.probe import probe_source

State = dict[str, Any]
Change = Callable[[Config], Config]


@dataclass(frozen=True)
class Start:
    """The first process's findings; ``settled`` is what the others must hear of them."""

    planned: Plan
    decode: Decode | None
    """None of a finished run whose decoder is not here: there is nothing left for it."""
    old: State | None
    """The header of a run that goes on."""
    state: State | None
    """Its newest checkpoint."""
    found: bool
    """Whether the folder was a run when we looked; it is locked since then."""
    init: dict[str, Tensor] | None
    normalisation: State | None
    """What the weights of --init are made for."""
    source: Source
    probed: Source | None

    @property
    def settled(self) -> tuple[Plan, Decode | None, State | None]:
        return self.planned, self.decode, self.old


def find_start(
    data: str | Path,
    run: Run,
    options: Options,
    request: State,
    change: Change,
    console: Console,
    device: torch.device,
    team: Team,
    held: contextlib.ExitStack,
    named: Collection[str] = (),
) -> Start:
    """Tries all that could be wrong, and says what was chosen; the run is locked if it exists."""
    source = open_source(data, directory=options.cache)
    found, state = find_state(run, device if team.group is None else "cpu", console, held)
    old = run.read_config() if state is not None else None
    begun = read_init(resume.begun_from(old, options.init, request), request["recipe"], change)
    change = change if begun is None else begun.below(change)

    def look(config: Config) -> State:
        same = source.channels == config.channels
        shown = source if same else open_source(data, config.channels, options.cache)
        return describe_data(Pictures(shown, config.short_side))

    planned = settle(old, request, source, device, change, options, run.path, look)
    config = planned.config
    if old is not None and (last := resume.finished_at(run, state)) and not can_decode(options):
        resume.refuse_other_data(old, look(config), run.path)
        say_resumed(last, last, run.path, console)
        return Start(planned, None, old, state, found, None, None, source, None)
    init = None if begun is None or state is not None else begun.weights
    checks.check(config, options, len(source), init, team.world)
    if config.channels != source.channels:
        source = open_source(data, config.channels, options.cache)
    probed = probe_source(options, config.channels)
    decode, planned = choose_way(planned, source, device, options)
    if begun is not None:
        asked = [own for own in planned.asked if not own.setting.startswith(THEIRS)]
        planned = replace(planned, choices=begun.choices(planned.choices), asked=asked)
    if state is None and (planned.choices or planned.asked):
        console.say(plan.table(planned))
    for words in begun.words() if begun is not None and state is None else ():
        console.say(words)
    if team.group is not None:
        console.say(describe_team(config, options, team))
    if not resume.is_finished(run):
        budget = seconds(request["budget"])
        checks.warn(config, source, device, console, team.world, budget, planned.facts, named)
        if begun is None and state is None and (few := checks.few_photographs(planned.facts)):
            console.say(few)
        say_disk(config, options, run.path, console)
    made_for = None if begun is None else begun.normalisation
    return Start(planned, decode, old, state, found, init, made_for, source, probed)


def find_state(
    run: Run, device: str | torch.device, console: Console, held: contextlib.ExitStack
) -> tuple[bool, State | None]:
    """Whether a run was begun there, locked from now on, and its newest checkpoint."""
    refuse_out(run.path)
    if not run.exists:
        return False, None
    held.enter_context(run.locked())
    state = run.load_checkpoint(device, console.say)
    resume.refuse_to_overwrite(run, state)
    if state is None:
        run.read_config()  # says so if it is damaged, or nobody's
        console.say(f"{run.path} was begun, but stopped before its first checkpoint: begun anew")
    return True, state


def settle(
    old: State | None,
    request: State,
    source: Source,
    device: torch.device,
    change: Change,
    options: Options,
    out: str | Path,
    look: resume.Look,
) -> Plan:
    """The run's own config if it goes on with the same request, else what is asked for now."""
    if old is None:
        return plan.choose(request, source, device, change)
    if old["request"] == request:
        planned = Plan(resume.config_of(old), [])
    else:
        facts = from_dict(DataFacts, old["facts"]) if old.get("facts") else None
        began = resume.config_of(old).precision  # stays, whatever would be chosen today
        planned = plan.choose(
            request, source, device, lambda c: change(replace(c, precision=began)), facts
        )
        resume.refuse_changes(old, planned.config, out, request["budget"], look)
    resume.refuse_other_init(old, options.init, out)
    resume.refuse_other_jpeg(old, options.jpeg, out)
    return planned


def can_decode(options: Options) -> bool:
    try:
        find_jpeg(options)
    except UserError:
        return False
    return True


def choose_way(
    planned: Plan, source: Source, device: torch.device, options: Options
) -> tuple[Decode, Plan]:
    """How to decode, and the plan with all that was chosen of running it."""
    choices = [*planned.choices, *plan.of_running(options, device)]
    jpeg = find_jpeg(options)
    if options.decode != "auto":
        return options.decode, replace(planned, choices=choices)
    decode, why = choose_decode(source, planned.config.short_side, options.cache, jpeg)
    choices.append(Choice("decode", decode, why, warning=decode == "stream"))
    return decode, replace(planned, choices=choices)
