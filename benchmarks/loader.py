"""How many pictures a second come out of a folder of JPEGs and out of shards, by number of workers.

    python benchmarks/loader.py [--count 4000] [--workers 1 2 4 8] [--short-side 256] \\
        [--sizes 48] [--jpeg gpu]

For 500 x 375 JPEGs made on the spot, or of --sizes widths from there on: decoding into a cache,
streaming from the folder, streaming from shards of the same files and from shards packed at the
short side; then what limits: a worker's own rate times the workers, and the rate at which worker
processes hand over pictures that cost nothing to decode. A cache's seconds are told apart: until
the first picture (the processes start), from there to the last, and how much longer the disk needs,
for which nobody waits. With --jpeg gpu the GPU decodes too, in a second table, with as many threads
that read as there were workers. Only figures of a machine with nothing else to do count.
"""

import argparse
import os
import statistics
import time
from contextlib import closing
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import torch

import wessl
from wessl.bench.pictures import write_jpegs
from wessl.data.cache.build import build_cache
from wessl.data.cache.sync import wait_for_disk
from wessl.data.decoding import jpeg as cpu_jpeg
from wessl.data.gpu_jpeg.nvjpeg import NvJpeg
from wessl.data.loading.loader import Loader
from wessl.data.sources.open import ArraySource, open_source
from wessl.data.sources.source import Source
from wessl.data.workers.many import decode_many
from wessl.errors import UserError


def steady(
    source: Source, short_side: int, workers: int, seconds: float, jpeg: NvJpeg | None = None
) -> float:
    """Pictures a second out of the loader, once it runs; on the GPU if that decodes."""
    device = "cpu" if jpeg is None else jpeg.device
    loader = Loader(
        source, 64, device=device, workers=workers, short_side=short_side, max_bad=0, jpeg=jpeg
    )
    with closing(loader.batches()) as batches:
        for _ in islice(batches, 3 + 2 * workers):  # until the chunks of the start are gone
            pass
        began, seen = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            seen += len(next(batches)[0])
        return seen / (time.perf_counter() - began)


def handed_over(workers: int, seconds: float) -> float:
    """Arrays that need no decoding: what is left is the way from process to process."""
    ready = ArraySource("ready", np.full((64, 256, 341, 3), 127, np.uint8), None)
    ready.parallel = True
    numbers = (i % len(ready) for i in count())
    with closing(decode_many(ready, numbers, None, workers)) as pictures:
        for _ in islice(pictures, 64 * workers):
            pass
        began, seen = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            seen += sum(1 for _ in islice(pictures, 64))
        return seen / (time.perf_counter() - began)


class Built(NamedTuple):
    """A cache of `count` pictures, in seconds."""

    count: int
    first: float
    whole: float
    on_disk: float

    def __str__(self) -> str:
        after = (self.count - 1) / (self.whole - self.first)
        return (
            f"         to cache: first picture after {self.first:.2f} s, then {after:.0f} img/s, "
            f"all after {self.whole:.2f} s, on the disk {self.on_disk - self.whole:.2f} s later"
        )


def to_cache(
    source: Source, home: Path, short_side: int, workers: int, jpeg: NvJpeg | None = None
) -> Built:
    first = 0.0
    with TemporaryDirectory(dir=home) as folder:

        def progress(done: int, total: int) -> None:
            nonlocal first
            if done == 1:
                first = time.perf_counter() - began

        began = time.perf_counter()
        build_cache(source, short_side, folder, workers, progress=progress, jpeg=jpeg)
        whole = time.perf_counter() - began
        wait_for_disk()
        return Built(len(source), first, whole, time.perf_counter() - began)


def alone(source: Source, short_side: int) -> dict[str, float]:
    """Pictures a second of one process that hands nothing over, by decoder, which take turns."""
    source.read(0, short_side)  # the first shrinking loads torch
    installed = cpu_jpeg.decoder()
    decoders = {"Pillow": None} | ({"simplejpeg": installed} if installed else {})
    seconds: dict[str, list[float]] = {name: [] for name in decoders}
    for _ in range(7):
        for name, decoder in decoders.items():
            cpu_jpeg.decoder = lambda decoder=decoder: decoder
            began = time.perf_counter()
            for i in range(100):
                source.read(i % len(source), short_side)
            seconds[name].append(time.perf_counter() - began)
    return {name: 100 / statistics.median(times) for name, times in seconds.items()}


def by_gpu(sources: list[Source], home: Path, asked: argparse.Namespace) -> None:
    """The same table with nvJPEG, or a line that says why there is none."""
    try:
        jpeg = NvJpeg("cuda")
    except UserError as error:
        print(f"left out: {error}")
        return
    print("threads  to cache  stream: folder   shards  packed small   (--jpeg gpu)")
    for threads in [n for n in asked.workers if n <= len(os.sched_getaffinity(0))]:
        cached = to_cache(sources[0], home, asked.short_side, threads, jpeg)
        found = [steady(source, asked.short_side, threads, asked.seconds, jpeg)
                 for source in sources]  # fmt: skip
        print(f"{threads:7} {asked.count / cached.whole:9.0f} {found[0]:15.0f} "
              f"{found[1]:8.0f} {found[2]:13.0f}")  # fmt: skip
        print(cached, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=4000)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--short-side", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--sizes", type=int, default=1, help="different sizes of pictures")
    parser.add_argument("--jpeg", choices=["cpu", "gpu"], default="cpu")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    cores, side = len(os.sched_getaffinity(0)), asked.short_side
    print(f"{asked.count} JPEGs of {asked.sizes} sizes, short side {side}, {cores} cores, img/s")
    with TemporaryDirectory(prefix="wessl-loader-") as name:
        home = Path(name)
        os.environ["WESSL_CACHE"] = str(home / "cache")
        write_jpegs(home / "jpegs", asked.count, 375, 500, asked.sizes)
        folder = open_source(home / "jpegs")
        same = open_source(wessl.pack(home / "jpegs", home / "same", None).path)
        small = open_source(wessl.pack(home / "jpegs", home / "small", side).path)
        rates = alone(folder, side)
        words = ", ".join(f"{name} {rate:.0f}" for name, rate in rates.items())
        print(f"one process that hands nothing over: {words}")
        *_, one = rates.values()
        print("workers  to cache  stream: folder   shards  packed small   hand-over alone")
        for workers in [n for n in asked.workers if n <= cores]:
            cached = to_cache(folder, home, side, workers)
            found = [steady(source, side, workers, asked.seconds)
                     for source in (folder, same, small)]  # fmt: skip
            over = handed_over(workers, asked.seconds / 2)
            print(f"{workers:7} {asked.count / cached.whole:9.0f} {found[0]:15.0f} "
                  f"{found[1]:8.0f} {found[2]:13.0f} {over:17.0f}")  # fmt: skip
            print(cached)
            limit = "decoding" if found[0] < 0.7 * over else "handing over to the parent"
            share = found[0] / (workers * one)
            print(f"         limited by {limit}: {share:.0%} of {workers} x one "
                  "process", flush=True)  # fmt: skip
        if asked.jpeg == "gpu":
            by_gpu([folder, same, small], home, asked)


if __name__ == "__main__":
    main()
