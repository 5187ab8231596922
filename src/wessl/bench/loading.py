"""From a folder of JPEG files to pictures on the device: decoding, and reading the cache."""

import itertools
import shutil
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from PIL import Image

from wessl.bench.pictures import write_jpegs
from wessl.bench.turns import Measured, Work, in_turns
from wessl.data.cache.build import build_cache
from wessl.data.cache.sync import wait_for_disk
from wessl.data.loading.loader import Loader
from wessl.data.sources.open import open_source
from wessl.data.sources.source import Source

SHORT_SIDE = 256
REMOVE = "remove"
"""A turn of its own, in nobody's time: the disk need not hold a cache a round."""
SAMPLE = 512
"""Files the straightforward way decodes at most: one process would need minutes for all."""


def measure_loading(
    device: torch.device, count: int, batch_size: int, seconds: float
) -> list[Measured]:
    """Rows ``wessl`` and ``PIL, one process`` for decoding, and ``wessl`` for the cache."""
    height, width = 375, 500
    with TemporaryDirectory(prefix="wessl-bench-") as name:
        folder = Path(name)
        write_jpegs(folder / "jpegs", count, height, width)
        source = open_source(folder / "jpegs")
        sample = sorted((folder / "jpegs").iterdir())[:SAMPLE]
        cache = build_cache(source, SHORT_SIDE, folder / "cache")
        loader = Loader(cache, batch_size, device=device)
        decode: dict[str, Work] = {
            "wessl": lambda: decode_to_disk(source, folder / "fresh"),
            "PIL, one process": lambda: [plain(path) for path in sample],
            REMOVE: lambda: shutil.rmtree(folder / "fresh"),
        }
        epoch: dict[str, Work] = {"wessl": lambda: one_epoch(loader)}
        decoded = in_turns(decode, device, seconds, least=2, most=5, warm=0)
        read = in_turns(epoch, device, seconds / 4)
    size = f"{count} JPEGs of {width}x{height}"
    items = {"wessl": count, "PIL, one process": len(sample)}
    rows = [
        Measured("loader", f"{size}, decoded to {SHORT_SIDE} px", way, times, items[way])
        for way, times in decoded.items()
        if way != REMOVE
    ]
    subject = f"{size}, from the cache in batches of {batch_size} ({loader.residency})"
    of_epoch = loader.steps_per_epoch * batch_size
    return [*rows, Measured("loader", subject, "wessl", read["wessl"], of_epoch)]


def decode_to_disk(source: Source, folder: Path) -> None:
    build_cache(source, SHORT_SIDE, folder)
    wait_for_disk()


def plain(path: Path) -> Image.Image:
    with Image.open(path) as picture:
        colour = picture.convert("RGB")
    scale = SHORT_SIDE / min(colour.size)
    width, height = (round(side * scale) for side in colour.size)
    return colour.resize((width, height), Image.Resampling.BICUBIC)


def one_epoch(loader: Loader) -> None:
    with closing(loader.batches(0)) as batches:
        for _ in itertools.islice(batches, loader.steps_per_epoch):
            pass
