"""What a run folder shows without being asked: a gallery, its heads compared, and the page of it.

A finished encoder, or a measurement, is not lost to a page that cannot be drawn: what goes wrong
here is said and no more.
"""

from pathlib import Path

from torch import Tensor

from wessl.config import Config
from wessl.data.cache.cache import PictureCache
from wessl.evaluate.features.trained_encoder import TrainedEncoder, load
from wessl.evaluate.gallery import gallery
from wessl.run import Run
from wessl.settings import from_dict
from wessl.verbs.diversity import diversity
from wessl.verbs.pages import Say, write_page

PICTURES = 2048
"""Enough for a first look; ``wessl diversity`` takes as many as the paper."""
QUICK = 4096
"""Codes of all heads together that a CPU compares in seconds."""


def after_training(
    run: Run,
    data: str | Path,
    cache: PictureCache | None,
    directory: str | None,
    device: str,
    say: Say,
) -> Path | None:
    """Pictures decoded on the way leave no cache: then the page names the commands instead."""
    try:
        if cache is not None:
            run.save_result("gallery", gallery(load(run.path, device), cache))
            heads = from_dict(Config, run.read_config()["config"]).heads
            if heads.count > 1 and (heads.count * heads.codes <= QUICK or device != "cpu"):
                diversity(run, data, PICTURES, device, cache=directory)
    except Exception as error:
        say(f"not all of the report's pictures could be made: {error}")
    return write_page(run.path, say)


def after_evaluation(
    run: Path,
    encoder: TrainedEncoder,
    cache: PictureCache,
    say: Say,
    features: Tensor | None = None,
) -> None:
    try:
        Run(run).save_result("gallery", gallery(encoder, cache, features=features))
    except Exception as error:
        say(f"not all of the report's pictures could be made: {error}")
    write_page(run, say)
