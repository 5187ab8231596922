"""``wessl.pretrain`` and ``wessl pretrain``: from pictures to a run folder with an encoder."""

import contextlib
import dataclasses
import hashlib
import platform
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import torch
import tyro
from torch import Tensor, nn

from wessl import plan
from wessl._version import __version__
from wessl.auto import Choice
from wessl.config import Config, Options, differences, from_dict, override, to_dict
from wessl.data.cache import PictureCache, build_cache
from wessl.data.loader import Loader
from wessl.data.sources import open_source
from wessl.errors import UserError
from wessl.evaluate.features import TrainedEncoder, extract
from wessl.evaluate.knn import knn_accuracy
from wessl.pretrain.console import Console
from wessl.pretrain.loop import Interrupted, train
from wessl.pretrain.trainer import Trainer
from wessl.recipes import recipe as named_recipe
from wessl.run import Run, read_weights, sha256

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
    with contextlib.ExitStack() as held:
        return _pretrain(data, out, options, request, change, console, held)


def _pretrain(
    data: str | Path,
    out: str | Path,
    options: Options,
    request: State,
    change: Callable[[Config], Config],
    console: Console,
    held: contextlib.ExitStack,
) -> Run:
    """Nothing is written to ``out`` before it is locked and all that could be wrong was tried."""
    device = plan.find_device(options.device)
    source = open_source(data, directory=options.cache)
    run, state = Run(out), None
    if run.exists:
        held.enter_context(run.locked())
        # Without a whole checkpoint the folder may begin anew.
        state = run.load_checkpoint(device, console.say)
        refuse_to_overwrite(run, state)
    old = run.read_config() if state is not None else None
    choices: list[Choice] = []
    if old is not None and old["request"] == request:
        config = from_dict(Config, old["config"])
    else:
        config, choices = plan.choose(request, source, device, change)
    if old is not None:
        refuse_changes(old["config"], to_dict(config), out)
        refuse_other_init(old["init"], options.init, out)
    elif choices:
        console.say(plan.table(choices, config))
    plan.check(config, options, device, console)
    if config.channels != source.channels:
        source = open_source(data, config.channels, options.cache)
    cache = build_cache(
        source, config.short_side, options.cache, options.workers, options.max_bad, console.decoding
    )
    header: State = dict(
        format=1,
        request=request,
        config=to_dict(config),
        options=to_dict(options),
        choices=[dataclasses.asdict(choice) for choice in choices],
        data=describe_data(source.location, cache),
        normalisation=dict(zip(("mean", "std"), normalisation(cache), strict=True)),
        init=describe_init(options.init),
        command=shlex.join(sys.argv),
        versions=versions(),
    )
    if old is not None:
        refuse_other_data(old["data"], header["data"], out)
        header = old
    loader = Loader(cache, config.optim.batch_size, config.seed, device)
    mean, std = header["normalisation"]["mean"], header["normalisation"]["std"]
    init = load_init(options.init) if state is None else None
    try:
        trainer = Trainer(config, options, loader, (mean, std), init)
        with contextlib.closing(loader.batches(0)) as batches:
            trainer.prepare(*next(batches))
    except ValueError as error:  # what the rooms below say of settings that do not go together
        raise UserError(str(error)) from error
    describe = description(config, mean, std)
    probe = make_probe(options, cache, config, describe)
    if not run.exists:
        held.enter_context(run.locked())
    if state is None:
        Run.create(out, header)
    console.log_to(run)
    say_data(cache, console, run)
    if init is not None:
        console.say(f"started from {len(init)} tensors of {options.init}, all of them")
    if state is not None:
        trainer.load_state(state)
        at = f"step {trainer.step} of {trainer.steps}"
        going = trainer.step < trainer.steps
        console.say(f"resuming {out} at {at}" if going else f"{out} is finished: {at}")
    try:
        train(trainer, run, console, probe, lambda: describe)
    except torch.OutOfMemoryError as error:
        raise plan.out_of_memory(config, device) from error
    return run


def say_data(cache: PictureCache, console: Console, run: Run) -> None:
    for name, reason in cache.skipped:
        run.log(f"skipped {name}: {reason}")
    if cache.skipped:
        first = ", ".join(name for name, _ in cache.skipped[:3])
        more = " and others" if len(cache.skipped) > 3 else ""
        console.say(f"{len(cache.skipped)} unreadable, left out ({first}{more}): see train.log")


def describe_data(location: str, cache: PictureCache) -> State:
    """Where the pictures are, and a digest of their sizes and of 64 of them, wherever they lie."""
    digest = hashlib.sha256(cache.heights.numpy().tobytes() + cache.widths.numpy().tobytes())
    for i in torch.linspace(0, len(cache) - 1, min(64, len(cache))).long():
        digest.update(cache.batch(i[None]).pixels.cpu().numpy().tobytes())
    return dict(
        location=location,
        pictures=len(cache),
        skipped=len(cache.skipped),
        digest=digest.hexdigest(),
    )


def describe_init(path: str | None) -> State | None:
    if path is None:
        return None
    place = Path(path) / "encoder.safetensors" if Path(path).is_dir() else Path(path)
    if not place.exists():
        raise UserError(f"--init {path} does not exist; give a run folder or a weights file")
    return dict(path=str(path), sha256=sha256(place))


def refuse_to_overwrite(run: Run, state: State | None) -> None:
    if state is None and (run.path / "encoder.safetensors").exists():
        raise UserError(
            f"{run.path} holds a finished encoder but no whole checkpoint to go on from; "
            "choose a new --out"
        )


def refuse_changes(old: State, new: State, out: str | Path) -> None:
    changed = [d for d in differences(old, new) if d[0] != "recipe"]
    if changed:
        lines = "\n".join(f"  {name}: {a!r} in the run, {b!r} asked for" for name, a, b in changed)
        raise UserError(
            f"{out} was begun with other settings:\n{lines}\n"
            "Ask for the old values to resume it, or choose a new --out"
        )


def refuse_other_init(old: State | None, path: str | None, out: str | Path) -> None:
    if path is not None and describe_init(path) != old:
        begun = "random weights" if old is None else f"--init {old['path']}"
        raise UserError(f"{out} was begun from {begun}, not --init {path}; choose a new --out")


def refuse_other_data(old: State, new: State, out: str | Path) -> None:
    if old["digest"] != new["digest"]:
        raise UserError(
            f"{out} was begun on {old['pictures']} pictures of {old['location']}, and the "
            f"{new['pictures']} of {new['location']} are not the same; give it the pictures it "
            "began with, or choose a new --out"
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


def command(words: list[str]) -> None:
    """Two passes over the words: first which recipe and data, then settings on top of it."""

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
        """Time to fit in, such as 20m or 2h."""
        running: tyro.conf.OmitArgPrefixes[Options] = field(default_factory=Options)

    if any(word in ("-h", "--help") for word in words):
        show_help(Pretrain, Config)
    asked, rest = tyro.cli(Pretrain, args=words, prog="wessl pretrain", return_unknown_args=True)
    console = Console()

    def change(config: Config) -> Config:
        return tyro.cli(Config, args=rest, default=config, prog="wessl pretrain DATA --out RUN")

    request = dict(recipe=asked.recipe, budget=asked.budget, changes=rest)
    try:
        run = pretrain_with(asked.data, asked.out, asked.running, request, change, console)
    except Interrupted as stopped:
        print(f"wessl: {stopped}; the same command goes on from there", file=sys.stderr)
        sys.exit(128 + stopped.signum)
    print(f"encoder: {run.path / 'encoder.safetensors'}")


def show_help(verb: Any, config: Any) -> NoReturn:
    """The verb's own flags, then every setting of the config with the default recipe's values."""
    settings = make_dataclass(
        "Settings",
        [(f.name, f.type, f) for f in dataclasses.fields(config) if f.name != "recipe"],
    )
    settings.__doc__ = "Settings on top of the recipe; shown are the values of dino-star/vits16."
    shown = named_recipe("dino-star/vits16")
    values = settings(**{f.name: getattr(shown, f.name) for f in dataclasses.fields(settings)})
    with contextlib.suppress(SystemExit):
        tyro.cli(verb, args=["--help"], prog="wessl pretrain")
    tyro.cli(settings, args=["--help"], prog="wessl pretrain DATA --out RUN", default=values)
    sys.exit(0)
