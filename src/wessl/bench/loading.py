"""From a folder of JPEG files to pictures on the device: decoding, and reading the cache."""

import itertools
import shutil
from contextlib import closing
from functools import partial
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
from wessl.errors import Failure

SHORT_SIDE = 256
SAMPLE = 512
"""Files the plain way decodes at most: one process would need minutes for all."""


def measure_loading(
    device: torch.device, count: int, batch_size: int, seconds: float
) -> list[Measured]:
    """Rows ``wessl`` and ``PIL, one process`` for decoding, and ``wessl`` for the cache."""
    height, width = 375, 500
    with TemporaryDirectory(prefix="wessl-bench-") as name:
        folder = Path(name)
        refuse_a_full_disk(folder, bytes_needed(count, height, width))
        write_jpegs(folder / "jpegs", count, height, width)
        source = open_source(folder / "jpegs")
        sample = sorted((folder / "jpegs").iterdir())[:SAMPLE]
        cache = build_cache(source, SHORT_SIDE, folder / "cache")
        loader = Loader(cache, batch_size, device=device)
        decode: dict[str, Work] = {
            "wessl": lambda: decode_to_disk(source, folder / "fresh"),
            "PIL, one process": lambda: [plain(path) for path in sample],
        }
        epoch: dict[str, Work] = {"wessl": lambda: one_epoch(loader)}
        remove = partial(shutil.rmtree, folder / "fresh")
        decoded = in_turns(decode, device, seconds, least=2, most=5, warm=0, between=remove)
        read = in_turns(epoch, device, seconds / 4)
    size = f"{count} JPEGs of {width}x{height}"
    items = {"wessl": count, "PIL, one process": len(sample)}
    rows = [
        Measured("loader", f"{size}, decoded to {SHORT_SIDE} px", way, times, items[way])
        for way, times in decoded.items()
    ]
    subject = f"{size}, from the cache in batches of {batch_size} ({loader.residency})"
    of_epoch = loader.steps_per_epoch * batch_size
    return [*rows, Measured("loader", subject, "wessl", read["wessl"], of_epoch)]


def refuse_a_full_disk(folder: Path, needed: int) -> None:
    """Before it is full, while that can be said in words."""
    if (free := shutil.disk_usage(folder).free) < needed:
        raise Failure(
            f"no room for the pictures that are decoded: {folder.parent} has {free:,} bytes free, "
            f"and {needed:,} are needed; set TMPDIR to a folder on a larger disk"
        )


def bytes_needed(count: int, height: int, width: int) -> int:
    """Of the files, and of two caches of them."""
    shrunk = SHORT_SIDE * round(SHORT_SIDE * width / height)
    return count * (height * width + 2 * 3 * shrunk)


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
