"""From what the user asked for to a whole config: recipe, sizes, device, and why."""

import functools
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from wessl import auto, recipes
from wessl.auto import Choice, DataFacts
from wessl.commands.budget import seconds
from wessl.config import Config, Options
from wessl.data.loading.memory import available_memory
from wessl.data.pictures import none_readable
from wessl.data.sources.open import Source
from wessl.devices import has_bf16, is_out_of_memory, usable_cores
from wessl.errors import UserError
from wessl.pretrain.place import find_place
from wessl.settings import differences, to_dict

State = dict[str, Any]
ASKED = "as asked for"
LOOKED_AT = 256
"""Pictures whose headers tell the typical size."""


@dataclass(frozen=True)
class Plan:
    """What a run will be, what was chosen for the user, and what the choices were made from."""

    config: Config
    choices: list[Choice]
    facts: DataFacts | None = None
    asked: list[Choice] = field(default_factory=list)
    """The user's own settings, as far as nothing else was chosen in their place."""


def choose(
    request: State,
    source: Source,
    device: torch.device,
    change: Callable[[Config], Config],
    facts: DataFacts | None = None,
) -> Plan:
    """A recipe as published, or the automatic one, with the user's settings on top.

    The automatic one is sized around the user's settings, and twice when those are epochs. A
    run that goes on gives the ``facts`` it began with: memory free today must not change it.
    """
    name, budget = request["recipe"], request["budget"]
    if name in recipes.names():
        if budget is not None:
            raise UserError(f"--budget needs automatic sizes; --recipe {name} fixes its epochs")
        published = recipes.recipe(name)
        choices = [Choice("channels", source.channels, "the pictures', not the recipe's")]
        choices = choices if source.channels != published.channels else []
        return suited(replace(published, channels=source.channels), choices, device, change)
    facts = facts or look_at(source, device)
    sized, choices = auto.small(name, facts, seconds(budget), change=change)
    epochs = change(sized).optim.epochs
    if epochs != sized.optim.epochs:
        if budget is not None:
            raise UserError("--budget and --epochs both set the length: give one of them")
        sized, choices = auto.small(name, facts, epochs=epochs, change=change)
    return replace(suited(sized, choices, device, change), facts=facts)


def suited(
    config: Config, choices: list[Choice], device: torch.device, change: Callable[[Config], Config]
) -> Plan:
    """bf16 only on GPUs that have it, and where it was chosen for a CPU; the user's settings."""
    chosen = any(c.setting == "precision" and c.value == "bf16" for c in choices)
    # A run that began on a CPU with bf16 goes on in it on any other, if slowly.
    has = has_bf16(device) if device.type == "cuda" else chosen
    if config.precision == "bf16" and not has:
        choices = [c for c in choices if c.setting != "precision"]
        choices.append(Choice("precision", "fp32", "this device has no bf16", warning=True))
        config = replace(config, precision="fp32")
    return Plan(settle(config, change), choices, asked=asked_for(config, choices, change))


def asked_for(
    config: Config, choices: list[Choice], change: Callable[[Config], Config]
) -> list[Choice]:
    chosen = {choice.setting for choice in choices}
    changes = differences(to_dict(config), to_dict(change(config)))
    return [Choice(name, new, ASKED) for name, _, new in changes if name not in chosen]


def settle(config: Config, change: Callable[[Config], Config]) -> Config:
    """The user's settings on top; a new weighting takes its own default gamma with it."""
    changed = change(config)
    if changed.loss.weighting == config.loss.weighting:
        return changed
    # What stands after a change of nothing but its start was set by the user, whatever it is.
    own = replace(config, loss=replace(config.loss, gamma=None))
    return replace(changed, loss=replace(changed.loss, gamma=change(own).loss.gamma))


def of_running(options: Options, device: torch.device) -> list[Choice]:
    """What was left to us of where and how to run."""
    gpu, choices = device.type == "cuda", []
    if options.device == "auto":
        why = "a GPU is there" if gpu else "no GPU is there for this torch"
        choices.append(Choice("device", str(device), why))
    if options.compile == "auto":
        why = "a minute or two before the first step, then faster" if gpu else "only pays on a GPU"
        choices.append(Choice("compile", "on" if gpu else "off", why))
    return choices


def table(plan: Plan) -> str:
    """What was chosen and why, aligned; where the user's own setting stands, it says so."""
    rows = []
    for choice in beside(plan.choices, plan.asked):
        if plan.config.encoder.kind == "conv" and choice.setting in auto.OF_TRANSFORMERS:
            continue
        own = choice.value
        group = choice.setting.split(".")[0]
        if group != "views" and hasattr(plan.config, group):
            own = functools.reduce(getattr, choice.setting.split("."), plan.config)
        reason = choice.reason if own == choice.value else ASKED
        if choice.setting == "encoder.size" and reason != ASKED and reshaped(plan):
            reason += f", but for {reshaped(plan)}"
        mark = "! " if choice.warning and own == choice.value else "  "
        rows.append((mark + choice.setting, str(own), reason))
    wide = [max(len(row[i]) for row in rows) for i in range(2)]
    return "\n".join(f"{a:<{wide[0]}}  {b:<{wide[1]}}  {c}" for a, b, c in rows)


def beside(choices: list[Choice], asked: list[Choice]) -> list[Choice]:
    """All of them, the user's own after the last one of the same group."""
    rows = list(choices)
    for own in asked:
        groups = [choice.setting.split(".")[0] for choice in rows]
        alike = [i for i, group in enumerate(groups) if group == own.setting.split(".")[0]]
        rows.insert(alike[-1] + 1 if alike else len(rows), own)
    return rows


def reshaped(plan: Plan) -> str:
    """The settings of the user's that make the encoder another than its size says."""
    own = {choice.setting for choice in plan.asked}
    return " and ".join(name for name in ("encoder.dim", "encoder.heads") if name in own)


def look_at(source: Source, device: torch.device) -> DataFacts:
    """Size of some pictures, their number, and what the device can hold."""
    if len(source) < 2:
        raise UserError(f"{source.location} holds {len(source)} picture; at least 2 are needed")
    height, width = typical_size(source)
    return DataFacts(
        pictures=len(source),
        height=height,
        width=width,
        channels=source.channels,
        device="cuda" if device.type == "cuda" else "cpu",
        memory_bytes=available_memory(device),
        cpu_bf16=device.type == "cpu" and has_bf16(device),
        cores=working_cores(),
        speed=gpu_speed(device) if device.type == "cuda" else 1.0,
    )


def gpu_speed(device: torch.device) -> float:
    """Beside the GPU whose rate of training is known; multiplies matrices for a moment."""
    from wessl.bench.rate import matrix_rate

    half = torch.bfloat16 if has_bf16(device) else torch.float32
    try:
        return auto.speed_beside_known(matrix_rate(device, half))
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return 1.0  # there is too little to train in, which is said later
    finally:
        torch.cuda.empty_cache()


def working_cores() -> int:
    """Those of this machine that the processes of a training share, however many these are."""
    place = find_place()
    processes = 1 if place is None else place.world
    return min(usable_cores(), torch.get_num_threads() * processes)


def typical_size(source: Source) -> tuple[int, int]:
    """Height and width, from the medians of the short side and of the ratio of width to height.

    Each side's own median may lie near the long side of all where half of them stand upright.
    """
    sizes, looked_at = [], source.sample(LOOKED_AT)
    for index in looked_at:
        try:
            sizes.append(source.size(index))
        except Exception:  # unreadable files are named when they are decoded
            continue
    if not sizes:
        raise none_readable(source, looked_at)
    short = statistics.median_low(min(size) for size in sizes)
    ratio = statistics.median_low(width / height for height, width in sizes)
    return (short, round(short * ratio)) if ratio >= 1 else (round(short / ratio), short)


def find_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise UserError(f"--device {name!r} is not a device; write cpu, cuda or cuda:1")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"--device {name}: this torch sees no GPU; use --device cpu")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        there = ", ".join(f"cuda:{i}" for i in range(torch.cuda.device_count()))
        raise UserError(f"--device {name} is not there; choose one of {there}")
    return device
