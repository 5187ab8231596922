"""From what the user asked for to a whole config: recipe, sizes, device, and what would fail."""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import torch

from wessl import auto, recipes
from wessl.config import Config, Options, check_ranges
from wessl.data.sources import Source
from wessl.ensemble.weighting import SCHEMES
from wessl.errors import UserError
from wessl.pretrain import cost
from wessl.pretrain.console import Console

State = dict[str, Any]


def choose(
    request: State, source: Source, device: torch.device, change: Callable[[Config], Config]
) -> tuple[Config, list[auto.Choice]]:
    """A recipe as published, or the automatic one, with the user's settings on top.

    The automatic one is sized twice when the user sets the epochs, so that its schedules follow.
    """
    name, budget = request["recipe"], request["budget"]
    if name in recipes.names():
        if budget is not None:
            raise UserError(f"--budget needs automatic sizes; --recipe {name} fixes its epochs")
        published = replace(recipes.recipe(name), channels=source.channels)
        return settle(suited(published, device), change), []
    facts = look_at(source, device)
    sized, choices = auto.small(name, facts, seconds(budget))
    epochs = change(sized).optim.epochs
    if epochs != sized.optim.epochs:
        if budget is not None:
            raise UserError("--budget and --optim.epochs both set the length: give one of them")
        sized, choices = auto.small(name, facts, epochs=epochs)
    return settle(suited(sized, device), change), choices


def suited(config: Config, device: torch.device) -> Config:
    """bf16 only on GPUs that have it."""
    has = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
    return config if has or config.precision == "fp32" else replace(config, precision="fp32")


def settle(config: Config, change: Callable[[Config], Config]) -> Config:
    """The user's settings on top; a new weighting takes its own default gamma with it."""
    changed = change(config)
    loss = changed.loss
    if loss.weighting != config.loss.weighting and loss.gamma == config.loss.gamma:
        changed = replace(changed, loss=replace(loss, gamma=None))
    return changed


def table(choices: list[auto.Choice], config: Config) -> str:
    """What was chosen and why, aligned; where the user's own setting stands, it says so."""
    rows = []
    for choice in choices:
        own = choice.value
        if choice.setting != "views":
            own = reduce(getattr, choice.setting.split("."), config)
        reason = choice.reason if own == choice.value else "as asked for"
        mark = "! " if choice.warning and own == choice.value else "  "
        rows.append((mark + choice.setting, str(own), reason))
    wide = [max(len(row[i]) for row in rows) for i in range(2)]
    return "\n".join(f"{a:<{wide[0]}}  {b:<{wide[1]}}  {c}" for a, b, c in rows)


def look_at(source: Source, device: torch.device) -> auto.DataFacts:
    """Size of a few pictures, their number, and what the device can hold."""
    if len(source) < 2:
        raise UserError(f"{source.location} holds {len(source)} picture; at least 2 are needed")
    sample = torch.linspace(0, len(source) - 1, min(9, len(source))).long().tolist()
    shapes = []
    for i in sample:
        try:
            shapes.append(source.read(i).shape)
        except Exception:  # unreadable files are named when the cache is built
            continue
    if not shapes:
        raise UserError(f"none of the first pictures looked at in {source.location} can be read")
    middle = len(shapes) // 2
    if device.type == "cuda":
        memory = torch.cuda.get_device_properties(device).total_memory
    else:
        memory = 8 * 2**30
    return auto.DataFacts(
        pictures=len(source),
        height=sorted(shape[0] for shape in shapes)[middle],
        width=sorted(shape[1] for shape in shapes)[middle],
        channels=source.channels,
        device="cuda" if device.type == "cuda" else "cpu",
        memory_bytes=memory,
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
        raise UserError(f"--device {name!r} is not a device; write cpu, cuda or cuda:1") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise UserError(f"--device {name}: this torch sees no GPU; use --device cpu")
    return device


def check(config: Config, options: Options, device: torch.device, console: Console) -> None:
    """What would fail later, said now."""
    check_ranges(config)
    if config.loss.weighting not in SCHEMES:
        raise UserError(
            f"--loss.weighting {config.loss.weighting!r} is unknown; choose {', '.join(SCHEMES)}"
        )
    if options.log_every < 1:
        raise UserError(f"--log-every {options.log_every} must be at least 1")
    if config.optim.batch_size % config.optim.accumulate:
        raise UserError(
            f"--optim.accumulate {config.optim.accumulate} does not divide "
            f"--optim.batch-size {config.optim.batch_size}"
        )
    for crop in config.views.crops:
        if config.encoder.kind == "vit" and crop.size < config.encoder.patch_size:
            raise UserError(
                f"a view of {crop.size} pixels is smaller than a patch of "
                f"{config.encoder.patch_size}; choose a smaller --encoder.patch-size"
            )
    targets = config.optim.batch_size * sum(role != "local" for role in config.views.roles)
    if config.loss.target == "sinkhorn" and config.heads.codes > targets:
        console.say(
            f"warning: {config.heads.codes} codes but Sinkhorn sees only {targets} targets a step, "
            f"so not all codes can be used at once; consider --heads.codes {targets}"
        )
    if config.optim.accumulate > 1 and config.loss.me_max > 0:
        console.say("note: with --optim.accumulate, ME-MAX is over each part, not the whole batch")
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")
        memory = torch.cuda.get_device_properties(device).total_memory
        need = cost.peak_bytes(config)
        console.say(f"memory: about {need / 2**30:.1f} of {memory / 2**30:.0f} GiB (estimate)")
        if need > memory:
            console.say(f"warning: that may not fit; {_remedy(config, memory)}")


def out_of_memory(config: Config, device: torch.device) -> UserError:
    memory = torch.cuda.get_device_properties(device).total_memory
    batch = config.optim.batch_size
    return UserError(
        f"out of memory with --optim.batch-size {batch} on {memory / 2**30:.0f} GiB; "
        f"{_remedy(config, memory)}"
    )


def _remedy(config: Config, memory: float) -> str:
    fits = min(cost.batch_that_fits(config, memory), config.optim.batch_size // 2)
    parts = -(-config.optim.batch_size // max(1, fits))
    return f"try --optim.batch-size {fits}, or the same batch in parts: --optim.accumulate {parts}"
