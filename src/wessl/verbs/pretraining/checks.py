"""What would go wrong later, said before anything is decoded, printed or written."""

import contextlib
import math
from collections.abc import Collection, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from wessl.auto import FEW_STEPS, DataFacts, duration, enough_budget
from wessl.config import Config, LossConfig, Options
from wessl.data.batch import Batch
from wessl.data.loading.loader import check_batch, check_parts
from wessl.data.loading.memory import available_memory
from wessl.data.pictures import gigabytes
from wessl.data.sources.open import Source
from wessl.devices import is_out_of_memory
from wessl.ensemble.balance import excess_that_wins
from wessl.ensemble.weighting import SCHEMES
from wessl.errors import Failure, UserError
from wessl.pretrain import cost
from wessl.pretrain.batch import check_roles, prepare
from wessl.pretrain.console import Console
from wessl.pretrain.model import build_model, refuse_misfit
from wessl.settings import check_ranges
from wessl.track.installed import refuse_missing

FEW_PHOTOGRAPHS = 5_000
"""A guess between a thousand, of which a CPU learnt little, and nine thousand, of which a GPU
learnt much (``docs/LOG.md``)."""


def check(
    config: Config,
    options: Options,
    pictures: int,
    init: dict[str, Tensor] | None = None,
    processes: int = 1,
) -> None:
    """Every setting, alone and together."""
    check_ranges(options)
    check_ranges(config)
    refuse_missing(options.track)
    if config.loss.weighting not in SCHEMES:
        raise UserError(
            f"--loss.weighting {config.loss.weighting!r} is unknown; choose {', '.join(SCHEMES)}"
        )
    check_batch(config.optim.batch_size, pictures)
    check_parts(config.optim.batch_size, processes)
    if config.optim.batch_size // processes % config.optim.accumulate:
        of_process = f" / {processes} processes" if processes > 1 else ""
        raise UserError(
            f"--optim.accumulate {config.optim.accumulate} does not divide "
            f"--optim.batch-size {config.optim.batch_size}{of_process}"
        )
    pictures_at_once = config.optim.batch_size // processes // config.optim.accumulate
    taught = pictures_at_once * config.views.taught
    if config.heads.batch_norm and config.heads.depth > 1 and taught < 2:
        raise UserError(
            "--heads.batch-norm needs two views at a time to normalise, and the teacher sees one; "
            "choose a larger --optim.batch-size or a smaller --optim.accumulate"
        )
    for crop in config.views.crops:
        if config.encoder.kind == "vit" and crop.size < config.encoder.patch_size:
            raise UserError(
                f"a view of {crop.size} pixels is smaller than a patch of "
                f"{config.encoder.patch_size}; choose a smaller --encoder.patch-size"
            )
    try:
        rehearse(config, init)
    except UserError:
        raise
    except ValueError as error:  # what the rooms below say of settings that do not go together
        raise UserError(str(error)) from error


def rehearse(config: Config, init: dict[str, Tensor] | None) -> None:
    """Networks without memory, and the views of two black pictures."""
    check_roles(config)
    with torch.device("meta"):
        student = build_model(config)
    if init is not None:
        refuse_misfit(student.encoder, init)
    black = torch.zeros(2, 32, 32, config.channels, dtype=torch.uint8)
    sides = torch.tensor([32, 32], dtype=torch.int32)
    mean, std = [0.5] * config.channels, [0.25] * config.channels
    prepare(Batch(black, sides, sides), torch.arange(2), config, student, 0, mean, std)


def _count(n: float, what: str) -> str:
    return f"{n:g} {what}{'s' * (n != 1)}"


def few_steps(
    config: Config, pictures: int, facts: DataFacts | None, budget: float | None
) -> str | None:
    """Why a run is too short, and the remedy: more time for one that a budget made short."""
    epochs, batch = config.optim.epochs, config.optim.batch_size
    steps = round(epochs * (pictures // batch))
    if steps >= FEW_STEPS:
        return None
    made = f"{pictures:,} pictures in batches of {batch}"
    if budget is None or facts is None:
        return (
            f"warning: {made} for {_count(epochs, 'epoch')} make {_count(steps, 'step')}, too few "
            "to learn much; give more pictures, more --epochs, or a smaller --optim.batch-size"
        )
    return (
        f"warning: --budget of {duration(budget)} allows {_count(epochs, 'epoch')} of {made}, "
        f"which makes {_count(steps, 'step')}, too few to learn much; "
        f"{enough_budget(config, facts)}"
    )


def few_photographs(facts: DataFacts | None) -> str | None:
    """That little is learnt from so few; drawings are told apart by their strokes.

    Of automatic sizes alone: whoever takes a published recipe knows what it is for.
    """
    if facts is None or facts.grey_drawings or facts.pictures >= FEW_PHOTOGRAPHS:
        return None
    return (
        f"note: {facts.pictures:,} photographs are few to learn from alone; if you have pretrained "
        "weights, begin with them (--init)"
    )


def warn(
    config: Config,
    source: Source,
    device: torch.device,
    console: Console,
    processes: int = 1,
    budget: float | None = None,
    facts: DataFacts | None = None,
    named: Collection[str] = (),
) -> None:
    """What will work, but not as well as it might; ``named`` are the user's own settings."""
    short = few_steps(config, len(source), facts, budget)
    if short is not None:
        console.say(short)
    for words in (source.note, source.passed_over):
        if words is not None:
            console.say(words)
    targets = config.optim.batch_size * config.views.taught
    if config.loss.target == "sinkhorn" and config.heads.codes > targets:
        console.say(
            f"warning: {config.heads.codes} codes but Sinkhorn sees only {targets} targets a step, "
            f"so not all codes can be used at once; consider --heads.codes {targets}"
        )
    in_vain = gamma_in_vain(config, named)
    schedules = longer_than_the_run(config), in_vain, gamma_only_falls(config), unheld(config)
    for said in (unseen_pixels(config), *schedules):
        if said is not None:
            console.say(said)
    if config.optim.accumulate > 1 and config.loss.me_max > 0:
        console.say("note: with --optim.accumulate, ME-MAX is over each part, not the whole batch")
    need = cost.peak_bytes(of_process(config, processes), device.type)
    memory = available_memory(device)
    there = f"{gigabytes(memory)} free on {device}"
    own = " besides Python and torch themselves" * (device.type == "cpu")
    console.say(f"memory: a step takes about {gigabytes(need)}{own} (estimate); {there}")
    singly = replace(config, optim=replace(config.optim, accumulate=config.optim.batch_size))
    least = cost.peak_bytes(singly, device.type)
    if processes == 1 and least > 1.5 * memory:  # an estimate, which knows of no shards
        raise UserError(
            f"even one picture at a time takes about {gigabytes(least)}, and {there}; choose a "
            "smaller --encoder.image-size or --encoder.size, or a larger --encoder.patch-size"
        )
    if need > memory:
        console.say(f"warning: that may not fit; {remedy(config, memory, device.type)}")


def unseen_pixels(config: Config) -> str | None:
    """Patches are cut from the top left; what does not fill one is left out."""
    patch = config.encoder.patch_size
    sizes = {crop.size for crop in config.views.crops if crop.size % patch}
    if config.encoder.kind != "vit" or not sizes:
        return None
    views = ", ".join(
        f"{size} pixels, of which {size - size % patch} are seen" for size in sorted(sizes)
    )
    return (
        f"warning: views of {views}, are no whole number of patches of {patch}; choose multiples "
        f"of {patch} for --encoder.image-size or --views.crops.0.size, .1.size ..."
    )


def longer_than_the_run(config: Config) -> str | None:
    """Which schedules will not arrive where they are meant to."""
    optim, loss = config.optim, config.loss
    falls = config.heads.count > 1 and loss.gamma_in_nats and loss.gamma_start > loss.settled_gamma
    warms = loss.teacher_temperature != loss.teacher_temperature_start
    phases = {
        "--optim.warmup-epochs": optim.warmup_epochs,
        "--optim.freeze-codes-epochs": optim.freeze_codes_epochs,
        "--loss.teacher-temperature-epochs": warms * loss.teacher_temperature_epochs,
        "--loss.gamma-epochs": falls * loss.gamma_epochs,
    }
    late = [f"{flag} {epochs:g}" for flag, epochs in phases.items() if epochs > optim.epochs]
    if not late:
        return None
    return (
        f"warning: the run is over after {_count(optim.epochs, 'epoch')}, before "
        f"{', '.join(late)}: what changes by then does not arrive; shorten it, or lengthen the run"
    )


def gamma_in_vain(config: Config, named: Collection[str]) -> str | None:
    """Which of the user's own settings of gamma nothing reads; a recipe may have one in vain."""
    loss, scheme = config.loss, SCHEMES[config.loss.weighting]
    unread = ["gamma", "gamma_start", "gamma_epochs"]
    instead = "a --loss.weighting that has one, such as ent"
    if config.heads.count == 1:
        why, instead = "one head has no weights", "more --heads.count"
    elif scheme.hard or scheme.reads == "nothing":
        why = f"--loss.weighting {loss.weighting} has no gamma"
    elif not loss.gamma_in_nats:
        why, unread = f"--loss.weighting {loss.weighting} has no gamma that falls", unread[1:]
    else:
        return None
    given = [
        f"--loss.{name.replace('_', '-')} {getattr(loss, name):g}"
        for name in unread
        if {"loss", f"loss.{name}"} & set(named)
        and getattr(loss, name) != getattr(LossConfig, name)
    ]
    if not given:
        return None
    change, them = ("changes", "it") if len(given) == 1 else ("change", "them")
    advice = f"leave {them} out, or choose {instead}"
    return f"warning: {', '.join(given)} {change} nothing: {why}; {advice}"


def gamma_only_falls(config: Config) -> str | None:
    """Why gamma does not start where it is set to."""
    loss, start, end = config.loss, config.loss.gamma_start, config.loss.settled_gamma
    if config.heads.count == 1 or not loss.gamma_in_nats or start >= end:
        return None
    return (
        f"warning: --loss.gamma-start {start:g} is below --loss.gamma {end:g}, and gamma only "
        f"falls: it is {end:g} from the first step"
    )


def unheld(config: Config) -> str | None:
    """Why one code may win: a teacher that only ME-MAX holds, and too weakly (``balance``)."""
    loss = config.loss
    sharpness = loss.student_temperature / loss.teacher_temperature
    if loss.target != "none" or excess_that_wins(loss.me_max, sharpness, config.heads.codes) > 1:
        return None
    mild = math.ceil(1e4 * loss.student_temperature / (1 + loss.me_max) - 1e-6) / 1e4
    return (
        f"warning: --loss.me-max {loss.me_max:g} is little beside a teacher {sharpness:.3g} times "
        "as sharp as the student, so that one code may win all pictures; take more than "
        f"{math.ceil(100 * (sharpness - 1) - 1e-6) / 100:g}, a --loss.teacher-temperature above "
        f"{mild:g}, or --loss.target sinkhorn"
    )


def of_process(config: Config, processes: int) -> Config:
    """The config with one process's part of the batch, to estimate what it takes."""
    optim = replace(config.optim, batch_size=config.optim.batch_size // processes)
    return replace(config, optim=optim)


def share_for_pictures(config: Config, device: torch.device, processes: int = 1) -> float:
    """The part of a device's free memory that a step leaves to pictures; never all of it."""
    memory = available_memory(device)
    need = cost.peak_bytes(of_process(config, processes), device.type)
    share = min(0.6, max(0.0, 0.9 - need / max(1, memory)))
    return share if device.type == "cuda" else share / processes


@contextlib.contextmanager
def enough_memory(config: Config, device: torch.device) -> Iterator[None]:
    """Turns every way of running out of memory into words with a batch that would fit."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise out_of_memory(config, device) from error


def out_of_memory(config: Config, device: torch.device) -> Failure:
    if device.type == "cuda":
        memory: float = torch.cuda.get_device_properties(device).total_memory
    else:
        memory = available_memory(device)
    # It did not fit, whatever the estimate says.
    memory = min(memory, 0.9 * cost.peak_bytes(config, device.type))
    return Failure(
        f"out of memory on {device} with --optim.batch-size {config.optim.batch_size}, "
        f"--optim.accumulate {config.optim.accumulate}; {remedy(config, memory, device.type)}"
    )


def remedy(config: Config, memory: float, device: str) -> str:
    batch = config.optim.batch_size
    whole = replace(config, optim=replace(config.optim, accumulate=1))
    fits = max(1, min(cost.batch_that_fits(whole, memory, device), batch // 2))
    words = f"try --optim.batch-size {fits}"
    parts = 2 * config.optim.accumulate
    while parts <= batch:
        split = replace(config, optim=replace(config.optim, accumulate=parts))
        if batch % parts == 0 and cost.peak_bytes(split, device) <= 0.9 * memory:
            return f"{words}, or the same batch in parts: --optim.accumulate {parts}"
        parts *= 2
    return f"{words}, fewer or smaller views, or a smaller encoder"
