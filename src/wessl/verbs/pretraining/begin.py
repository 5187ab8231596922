"""From decoded pictures to a trainer with its first batch tried, and what is said of them."""

import contextlib
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from wessl import plan
from wessl.config import Config, Options
from wessl.data.gpu_jpeg.nvjpeg import BatchDecoder, NvJpeg
from wessl.data.loading.loader import Loader
from wessl.data.pictures import Decode, Pictures, gigabytes, open_pictures
from wessl.data.sources.open import Source
from wessl.errors import UserError
from wessl.pretrain import cost
from wessl.pretrain.console import Console
from wessl.pretrain.parallel import ALONE, Team
from wessl.pretrain.trainer import Trainer
from wessl.run import Run
from wessl.verbs.pretraining import checks


def find_jpeg(options: Options) -> BatchDecoder | None:
    """What ``--jpeg`` asks for, tried."""
    return None if options.jpeg == "cpu" else _nvjpeg(plan.find_device(options.device))


@cache
def _nvjpeg(device: torch.device) -> NvJpeg:
    return NvJpeg(device)


def decode_pictures(
    source: Source, decode: Decode, config: Config, options: Options, console: Console
) -> Pictures:
    """As the run's options say, whether they are to learn from or to probe with."""
    return open_pictures(
        source,
        config.short_side,
        decode,
        options.cache,
        options.workers,
        options.max_bad,
        console.decoding,
        find_jpeg(options),
    )


def build_trainer(
    config: Config,
    options: Options,
    pictures: Pictures,
    device: torch.device,
    normalisation: tuple[list[float], list[float]],
    init: dict[str, Tensor] | None,
    team: Team = ALONE,
) -> Trainer:
    """With its first batch tried: a folder full of broken pictures shows here."""
    loader = Loader(
        pictures.source if pictures.cache is None else pictures.cache,
        config.optim.batch_size,
        config.seed,
        device,
        share=checks.share_for_pictures(config, device, team.world),
        short_side=config.short_side,
        workers=options.workers,
        max_bad=options.max_bad,
        part=team.part,
        jpeg=pictures.jpeg,
    )
    try:
        trainer = Trainer(config, options, loader, normalisation, init, team)
        with contextlib.closing(loader.batches(0)) as batches:
            trainer.prepare(*next(batches))
    except UserError:
        raise
    except ValueError as error:  # what the rooms below say of settings that do not go together
        raise UserError(str(error)) from error
    return trainer


def say_pictures(pictures: Pictures, trainer: Trainer, console: Console, run: Run) -> None:
    if pictures.cache is None:
        console.say(f"pictures: {len(pictures):,}, decoded again for every batch")
        return
    where, size = "on disk", pictures.cache.nbytes
    if trainer.loader.residency == "device":
        where = "in memory"
        if trainer.device.type == "cuda":
            both = gigabytes(size + cost.peak_bytes(trainer.config))
            where = f"in the GPU's memory, which with a step makes about {both} (estimate)"
    skipped = pictures.cache.skipped
    listed = f" of {len(pictures):,}" if skipped else ""
    console.say(f"pictures: {len(pictures.cache):,}{listed}, decoded, {gigabytes(size)} {where}")
    for name, reason in skipped:
        run.log(f"skipped {name}: {reason}")
    if skipped:
        first = ", ".join(name for name, _ in skipped[:3])
        more = " and others" if len(skipped) > 3 else ""
        console.say(f"{len(skipped)} unreadable, left out ({first}{more}): see train.log")


def say_resumed(step: int, steps: int, out: str | Path, console: Console) -> None:
    at = f"step {step} of {steps}"
    console.say(f"resuming {out} at {at}" if step < steps else f"{out} is finished: {at}")
