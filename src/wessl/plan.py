"""From what the user asked for to a whole config: recipe, sizes, device, and why."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from wessl import auto, recipes
from wessl.auto import Choice, DataFacts
from wessl.config import Config, Options
from wessl.data.memory import available_memory
from wessl.data.pictures import spaced
from wessl.data.sources import Source
from wessl.devices import has_bf16
from wessl.errors import UserError

State = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """What a run will be, what was chosen for the user, and what the choices were made from."""

    config: Config
    choices: list[Choice]
    facts: DataFacts | None = None


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
            raise UserError("--budget and --optim.epochs both set the length: give one of them")
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
    return Plan(settle(config, change), choices)


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


def table(choices: list[Choice], config: Config) -> str:
    """What was chosen and why, aligned; where the user's own setting stands, it says so."""
    rows = []
    for choice in choices:
        own = choice.value
        if choice.setting != "views" and hasattr(config, choice.setting.split(".")[0]):
            own = functools.reduce(getattr, choice.setting.split("."), config)
        reason = choice.reason if own == choice.value else "as asked for"
        mark = "! " if choice.warning and own == choice.value else "  "
        rows.append((mark + choice.setting, str(own), reason))
    wide = [max(len(row[i]) for row in rows) for i in range(2)]
    return "\n".join(f"{a:<{wide[0]}}  {b:<{wide[1]}}  {c}" for a, b, c in rows)


def look_at(source: Source, device: torch.device) -> DataFacts:
    """Size of a few pictures, their number, and what the device can hold."""
    if len(source) < 2:
        raise UserError(f"{source.location} holds {len(source)} picture; at least 2 are needed")
    shapes = []
    for i in spaced(len(source), 9):
        try:
            shapes.append(source.read(i).shape)
        except Exception:  # unreadable files are named when they are decoded
            continue
    if not shapes:
        raise UserError(f"none of the first pictures looked at in {source.location} can be read")
    middle = len(shapes) // 2
    return DataFacts(
        pictures=len(source),
        height=sorted(shape[0] for shape in shapes)[middle],
        width=sorted(shape[1] for shape in shapes)[middle],
        channels=source.channels,
        device="cuda" if device.type == "cuda" else "cpu",
        memory_bytes=available_memory(device),
        cpu_bf16=device.type == "cpu" and has_bf16(device),
    )


def seconds(budget: str | float | None) -> float | None:
    """``"90s"``, ``"20m"``, ``"2h"`` or a number of seconds.

    >>> seconds("20m")
    1200.0
    """
    if budget is None or isinstance(budget, (int, float)):
        return budget
    units = {"s": 1, "m": 60, "h": 3600, "d": 86400}
    try:
        value = float(budget[:-1]) * units[budget[-1]]
    except (ValueError, KeyError, IndexError):
        raise UserError(f"--budget {budget!r} is not a time; write 90s, 20m or 2h") from None
    if not value > 0:
        raise UserError(f"--budget {budget!r} must be more than nothing")
    return value


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
