"""The public verbs as functions: they wire the rooms together and print nothing of their own."""

import dataclasses
import platform
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from wessl import auto, recipes
from wessl._version import __version__
from wessl.config import Config, Options, differences, from_dict, override, to_dict
from wessl.data.cache import PictureCache, build_cache
from wessl.data.loader import Loader
from wessl.data.sources import Source, open_source
from wessl.errors import UserError
from wessl.evaluate.features import TrainedEncoder, extract
from wessl.evaluate.knn import knn_accuracy
from wessl.pretrain import cost
from wessl.pretrain.console import Console
from wessl.pretrain.loop import train
from wessl.pretrain.trainer import Trainer
from wessl.run import Run, read_weights

State = dict[str, Any]
PROBE_PICTURES = 10_000
"""k-NN during training looks at this many pictures at most."""


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
    options = Options(**{k: v for k, v in overrides.items() if k in names})
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
    change: Callable[[Config], Config],
    console: Console,
) -> Run:
    """What ``pretrain`` and its command share; ``change`` puts the user's settings on a recipe."""
    if options.log_every < 1:
        raise UserError(f"--log-every {options.log_every} must be at least 1")
    device = find_device(options.device)
    source = open_source(data, directory=options.cache)
    old = Run(out).read_config() if Run(out).exists else None
    if old is not None and old["request"] == request:
        config = from_dict(Config, old["config"])
    else:
        config, choices = choose(request, source, device, change)
        for choice in choices if old is None else ():
            console.say(f"  {choice.setting:<30} {choice.value!s:<14} {choice.reason}")
        if old is not None:
            refuse_changes(old["config"], to_dict(config), out)
    check(config, device, console)
    cache = build_cache(
        source,
        config.short_side,
        options.cache,
        options.workers,
        options.max_bad,
        console.decoding,
    )
    return run_training(config, options, request, cache, source, Path(out), old, device, console)


def run_training(
    config: Config,
    options: Options,
    request: State,
    cache: PictureCache,
    source: Source,
    out: Path,
    old: State | None,
    device: torch.device,
    console: Console,
) -> Run:
    mean, std = normalisation(cache)
    if old is None:
        header = dict(
            format=1,
            request=request,
            config=to_dict(config),
            options=to_dict(options),
            data=dict(location=source.location, pictures=len(cache), skipped=len(cache.skipped)),
            normalisation=dict(mean=mean, std=std),
            command=shlex.join(sys.argv),
            versions=versions(),
        )
        run = Run.create(out, header)
    else:
        run = Run(out)
        mean, std = old["normalisation"]["mean"], old["normalisation"]["std"]
        refuse_other_data(old["data"], len(cache), source.location, out)
    for name, reason in cache.skipped:
        run.log(f"skipped {name}: {reason}")
    if cache.skipped:
        first = ", ".join(name for name, _ in cache.skipped[:3])
        console.say(f"{len(cache.skipped)} pictures could not be read ({first} ...): see train.log")
    loader = Loader(cache, config.optim.batch_size, config.seed, device)
    state = run.load_checkpoint(device)
    init = load_init(options.init) if state is None else None
    trainer = Trainer(config, options, loader, (mean, std), init)
    if state is None and old is not None:
        console.say(f"{out} has no whole checkpoint: starting it again from the beginning")
    if state is not None:
        trainer.load_state(state)
        if trainer.step < trainer.steps:
            console.say(f"resuming {out} at step {trainer.step} of {trainer.steps}")
    describe = description(config, mean, std)
    probe = make_probe(options, cache, config, describe)
    try:
        train(trainer, run, console, probe, lambda: describe)
    except torch.OutOfMemoryError as error:
        raise out_of_memory(config, device) from error
    return run


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
        return change(recipes.recipe(name)), []
    facts = look_at(source, device)
    sized, choices = auto.small(name, facts, seconds(budget))
    epochs = change(sized).optim.epochs
    if epochs != sized.optim.epochs:
        sized, choices = auto.small(name, facts, epochs=epochs)
    return change(sized), choices


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


def check(config: Config, device: torch.device, console: Console) -> None:
    """What would fail later, said now."""
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


def refuse_changes(old: State, new: State, out: str | Path) -> None:
    changed = [d for d in differences(old, new) if d[0] != "recipe"]
    if changed:
        lines = "\n".join(f"  {name}: {a!r} in the run, {b!r} asked for" for name, a, b in changed)
        raise UserError(
            f"{out} was begun with other settings:\n{lines}\n"
            "Ask for the old values to resume it, or choose a new --out"
        )


def refuse_other_data(old: State, pictures: int, location: str, out: Path) -> None:
    if old["pictures"] != pictures:
        raise UserError(
            f"{out} was begun on {old['pictures']} pictures of {old['location']}, and {location} "
            f"now has {pictures}; give it the same pictures, or choose a new --out"
        )


def normalisation(cache: PictureCache) -> tuple[list[float], list[float]]:
    """ImageNet's for colour, so that the encoder fits other tools; the data's own otherwise."""
    if cache.channels == 3:
        return [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    mean, std = cache.mean_std()
    return mean, [max(s, 1e-3) for s in std]


def description(config: Config, mean: list[float], std: list[float]) -> State:
    """``encoder.json``: what someone needs to use the weights."""
    size = config.views.crops[0].size
    photographs = config.views.crops[0].inside and size >= 64
    return dict(
        format=1,
        encoder=to_dict(config.encoder) | {"drop_path": 0.0},
        channels=config.channels,
        mean=mean,
        std=std,
        image_size=size,
        resize=round(size * 256 / 224) if photographs else size,
        recipe=config.recipe,
        network="teacher",
    )


def make_probe(
    options: Options, cache: PictureCache, config: Config, describe: State
) -> Callable[[nn.Module], dict[str, float]] | None:
    """k-NN of a fixed fifth of the labelled pictures against the rest, or None without labels."""
    if options.probe is not None:
        source = open_source(options.probe, config.channels, options.cache)
        cache = build_cache(source, config.short_side, options.cache, options.workers)
        if cache.labels is None:
            raise UserError(f"--probe {options.probe} has no labels; give folders named by class")
    if cache.labels is None:
        return None
    chosen = torch.randperm(len(cache), generator=torch.Generator().manual_seed(0))
    chosen = chosen[:PROBE_PICTURES]
    labels, fifth = cache.labels[chosen], max(1, len(chosen) // 5)

    def probe(encoder: nn.Module) -> dict[str, float]:
        features = extract(TrainedEncoder(encoder, describe), cache, chosen)
        accuracy = knn_accuracy(
            features[fifth:], labels[fifth:], features[:fifth], labels[:fifth], k=(20,)
        )
        return {"knn": float(accuracy[20])}

    return probe


def load_init(path: str | None) -> dict[str, Tensor] | None:
    if path is None:
        return None
    place = Path(path)
    return (Run(place).load_encoder() if place.is_dir() else read_weights(place))[0]


def versions() -> dict[str, str]:
    return dict(wessl=__version__, torch=torch.__version__, python=platform.python_version())
