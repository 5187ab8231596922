"""How much of the disk a run will keep, said before it starts."""

import shutil
from pathlib import Path

import torch

from wessl.config import Config, Options
from wessl.data.pictures import gigabytes
from wessl.pretrain.console import Console
from wessl.pretrain.model import build_model
from wessl.pretrain.saving import checkpoints_kept

BYTES_PER_PARAMETER = 4 + 4 + 8
"""Student, teacher and AdamW's two moments, all fp32."""


def checkpoint_bytes(config: Config) -> int:
    """Of one checkpoint, but for names and the step: networks are counted that take no memory."""
    with torch.device("meta"):
        model = build_model(config)
    return BYTES_PER_PARAMETER * sum(parameter.numel() for parameter in model.parameters())


def encoder_bytes(config: Config) -> int:
    """Of the encoder's own file, which stays when checkpoints go; fp32."""
    with torch.device("meta"):
        encoder = build_model(config).encoder
    return 4 * sum(parameter.numel() for parameter in encoder.parameters())


def say_disk(config: Config, options: Options, out: Path, console: Console) -> None:
    """What checkpoints will take beside what is free, and what to do if that is too little.

    The newest is written whole before the oldest goes, so there is one more for a moment.
    """
    one = checkpoint_bytes(config)
    there = next(place for place in (out, *out.absolute().parents) if place.exists())
    free = shutil.disk_usage(there).free
    keep = checkpoints_kept(options.keep)
    many = f"{keep} checkpoints of" if keep > 1 else "a checkpoint of"
    after = ", one when it is done" if options.keep is None else ""
    size = f"{many} about {gigabytes(one)}{after}"
    console.say(f"disk: the run keeps {size}; {gigabytes(free)} free in {there}")
    if (keep + 1) * one > free:
        console.say(
            f"warning: that is too little for {keep} and the one being written; "
            "free some, choose another --out, fewer to --keep, or fewer or narrower heads"
        )
