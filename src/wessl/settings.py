"""Settings by name: dictionaries of them and back, overrides, differences, ranges."""

import dataclasses
import math
import types
import typing
from typing import Any, Literal

from wessl.config import Config, Options
from wessl.errors import UserError, did_you_mean


def to_dict(config: Any) -> dict[str, Any]:
    return dataclasses.asdict(config)


def from_dict(kind: Any, values: Any, name: str = "config") -> Any:
    """Rebuilds a dataclass tree from what ``to_dict`` and JSON made of it; strict about it."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if values is None:
            return None
        choice = [a for a in arguments if a is not type(None)]
        return from_dict(next((k for k in choice if _fits(k, values)), choice[0]), values, name)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if isinstance(values, kind):
            return values
        fields, hints = field_names(kind), typing.get_type_hints(kind)
        if not isinstance(values, dict):
            choices = ", ".join(f"{name}.{field}" for field in fields)
            raise UserError(f"{name} is a group of settings: set one of {choices}")
        for key in values:
            if key not in fields:
                raise UserError(f"{name}: unknown field {key!r} in {kind.__name__}")
        return kind(**{k: from_dict(hints[k], v, f"{name}.{k}") for k, v in values.items()})
    if origin is tuple and isinstance(values, (list, tuple)):
        kinds = arguments if Ellipsis not in arguments else (arguments[0],) * len(values)
        if len(kinds) == len(values):
            return tuple(from_dict(k, v, name) for k, v in zip(kinds, values, strict=True))
    if not _fits(kind, values):
        choices = f"one of {', '.join(map(repr, arguments))}"
        wanted = choices if origin is Literal else getattr(kind, "__name__", kind)
        wanted = "a list, as [8, 16]" if origin is tuple else wanted
        raise UserError(f"{name} must be {wanted}, got {values!r}")
    return values


def _fits(kind: Any, value: Any) -> bool:
    """Whether a plain value is of a kind; a whole number is a float too, a boolean is no number."""
    if typing.get_origin(kind) is Literal:
        return value in typing.get_args(kind)
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return isinstance(kind, type) and isinstance(value, kind)


def field_names(config: Any) -> list[str]:
    return [f.name for f in dataclasses.fields(config)] if dataclasses.is_dataclass(config) else []


def override(config: Config, changes: dict[str, Any]) -> Config:
    """``override(config, {"optim.epochs": 5, "seed": 1})``; a bare field name is found anywhere.

    >>> override(Config(), {"epochs": 5, "heads.count": 16}).optim.epochs
    5
    """
    for name, value in changes.items():
        config = _set(config, _locate(config, name), value)
    return config


def full_name(name: str) -> str:
    """With the group it is in: ``epochs`` is ``optim.epochs``.

    >>> full_name("epochs"), full_name("heads.count"), full_name("seed")
    ('optim.epochs', 'heads.count', 'seed')
    """
    return ".".join(_locate(Config(), name))


def _locate(config: Any, name: str) -> list[str]:
    if "." in name or name in field_names(config):
        return name.split(".")
    homes = [p for p in field_names(config) if name in field_names(getattr(config, p))]
    if len(homes) == 1:
        return [homes[0], name]
    if homes:
        choices = ", ".join(f"{home}.{name}" for home in homes)
        raise UserError(f"setting {name!r} is ambiguous: write one of {choices}")
    every = [
        *field_names(config),
        *(n for p in field_names(config) for n in field_names(getattr(config, p))),
    ]
    meant = did_you_mean(name, every)
    raise UserError(f"unknown setting {name!r}; {meant}see `wessl pretrain --help-all`")


def _set(config: Any, path: list[str], value: Any, prefix: str = "") -> Any:
    name, rest = path[0], path[1:]
    if name not in field_names(config):
        where = prefix.rstrip(".") or "the config"
        meant = did_you_mean(prefix + name, [prefix + known for known in field_names(config)])
        raise UserError(f"unknown setting {name!r} in {where}; {meant}".rstrip("; "))
    if rest:
        new = _set(getattr(config, name), rest, value, f"{prefix}{name}.")
    else:
        new = from_dict(typing.get_type_hints(type(config))[name], value, prefix + name)
    return dataclasses.replace(config, **{name: new})


def differences(old: Any, new: Any, prefix: str = "") -> list[tuple[str, Any, Any]]:
    """Every leaf in which two dictionaries made by ``to_dict`` differ: (name, old, new)."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in [*old, *(k for k in new if k not in old)]:
            name = f"{prefix}.{key}" if prefix else key
            found += differences(old.get(key), new.get(key), name)
        return found
    if isinstance(old, (list, tuple)) and isinstance(new, (list, tuple)):
        if len(old) == len(new) and all(isinstance(one, dict) for one in (*old, *new)):
            numbered = enumerate(zip(old, new, strict=True))
            return [d for i, (a, b) in numbered for d in differences(a, b, f"{prefix}.{i}")]
        same = list(old) == list(new)  # JSON makes lists of tuples
        return [] if same else [(prefix, old, new)]
    return [] if old == new else [(prefix, old, new)]


RANGES: dict[str, tuple[float, float, bool]] = {  # lowest, highest, whether the lowest itself goes
    "short_side": (1, math.inf, True),
    "channels": (1, math.inf, True),
    "encoder.patch_size": (1, math.inf, True),
    "encoder.image_size": (1, 4096, True),
    "encoder.drop_path": (0, 0.99, True),
    "heads.count": (1, math.inf, True),
    "heads.depth": (1, math.inf, True),
    "heads.hidden_dim": (1, math.inf, True),
    "heads.embed_dim": (1, math.inf, True),
    "heads.codes": (2, math.inf, True),
    "loss.gamma": (0, math.inf, False),
    "loss.gamma_start": (0, math.inf, False),
    "loss.student_temperature": (0, math.inf, False),
    "loss.teacher_temperature": (0, math.inf, False),
    "loss.teacher_temperature_start": (0, math.inf, False),
    "loss.center_momentum": (0, 1, True),
    "loss.me_max": (0, math.inf, True),
    "loss.mask": (0, 0.99, True),
    "optim.epochs": (0, math.inf, False),
    "optim.batch_size": (1, math.inf, True),
    "optim.lr": (0, math.inf, True),
    "optim.lr_start": (0, math.inf, True),
    "optim.min_lr": (0, math.inf, True),
    "optim.warmup_epochs": (0, math.inf, True),
    "optim.weight_decay": (0, math.inf, True),
    "optim.weight_decay_end": (0, math.inf, True),
    "optim.clip": (0, math.inf, False),
    "optim.momentum": (0, 1, True),
    "optim.momentum_end": (0, 1, True),
    "optim.schedule_stretch": (0, math.inf, False),
    "optim.accumulate": (1, math.inf, True),
}


OPTION_RANGES: dict[str, tuple[float, float, bool]] = {
    "workers": (0, math.inf, True),
    "restarts": (0, math.inf, True),
    "timeout": (0, math.inf, False),
    "max_bad": (0, math.inf, True),
    "save_every": (0, math.inf, True),
    "keep": (1, math.inf, True),
    "log_every": (1, math.inf, True),
    "probe_every": (0, math.inf, False),
    "max_nonfinite": (0, math.inf, True),
}


def check_ranges(config: Config | Options) -> None:
    """Stops at the first number that makes no sense, naming its flag.

    >>> check_ranges(Config())
    """
    ranges = RANGES if isinstance(config, Config) else OPTION_RANGES
    for name, (lowest, highest, closed) in ranges.items():
        value: Any = config
        for part in name.split("."):
            value = getattr(value, part)
        if value is None:
            continue
        if not (lowest <= value <= highest if closed else lowest < value <= highest):
            least = f"at least {lowest}" if closed else f"more than {lowest}"
            most = "" if highest == math.inf else f" and at most {highest}"
            flag = "--epochs" if name == "optim.epochs" else "--" + name.replace("_", "-")
            raise UserError(f"{flag} must be {least}{most}, got {value}")
