"""Pictures to cache, and processes that do it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from wessl.data.cache.build import build_cache
from wessl.data.cache.cache import PictureCache
from wessl.data.cache.writer import SMALL
from wessl.data.sources.open import open_source

BUILDER = """
import sys, time
from wessl.data.cache import writer as cache_writer
from wessl.data.cache.build import build_cache
from wessl.data.sources.open import open_source
calls = []
def progress(done, total):
    calls.append(done)
    print(done, flush=True)
    time.sleep(float(sys.argv[3]))
cache_writer.SMALL = int(sys.argv[4])
cache = build_cache(open_source(sys.argv[1]), directory=sys.argv[2], progress=progress)
print("decoded", len(calls), "holds", len(cache), cache.pixels.sum().item(), flush=True)
"""


def fill(folder: Path, count: int, sizes: tuple[int, int] = (20, 40), channels: int = 3) -> Path:
    """Noise pictures in two class folders, of sizes between the two given."""
    rng = np.random.default_rng(count)
    for i in range(count):
        height, width = rng.integers(sizes[0], sizes[1], 2, endpoint=True)
        pixels = rng.integers(0, 256, (height, width, channels), dtype=np.uint8)
        path = folder / f"class{i % 2}" / f"{i:04d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.squeeze()).save(path, compress_level=1)
    return folder


def build(folder: Path, directory: Path, **options: object) -> PictureCache:
    return build_cache(open_source(folder), directory=directory, **options)


def start_builder(
    pictures: Path, directory: Path, pause: float = 0, small: int = SMALL
) -> subprocess.Popen[str]:
    told = (str(part) for part in (pictures, directory, pause, small))
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, *told], stdout=subprocess.PIPE, text=True
    )
