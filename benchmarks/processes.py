"""One training in one process with N threads, beside N processes with one thread each, on a CPU.

    python benchmarks/processes.py [--processes 2] [--steps 20] [--turns 3]

The same steps of the same batch; the ways take turns, so that what else the machine does falls on
all alike. One row a way: the median time of a step over all turns, and its ratio to the first. The
losses of the last step stand beside them: they are the same to rounding, or the row means nothing.
"""

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import torch
import torch.multiprocessing as mp

from wessl.config import Config, EncoderConfig, HeadsConfig, OptimConfig, Options
from wessl.data.cache.build import build_cache
from wessl.data.loading.loader import Loader
from wessl.data.sources.open import open_source
from wessl.data.views.config import dino_views
from wessl.devices import wait_briefly
from wessl.pretrain.parallel import join
from wessl.pretrain.place import Place
from wessl.pretrain.trainer import Trainer

WARM_UP = 3

CONFIG = Config(
    encoder=EncoderConfig(dim=192, depth=4, heads=3, patch_size=4, image_size=32),
    heads=HeadsConfig(count=4, hidden_dim=256, codes=128),
    optim=OptimConfig(epochs=10, batch_size=48),
    views=dino_views(32, 16, 4),
    channels=1,
)


def measure(rank: int, world: int, threads: int, steps: int, folder: str) -> None:
    """Times of the steps of one process among ``world``; the first one writes them down."""
    torch.set_num_threads(threads)
    place = Place(rank, world, rank, f"file://{folder}/meet") if world > 1 else None
    with join(place, torch.device("cpu"), timeout=300) as team:
        cache = build_cache(open_source("builtin://digits/train"), None, folder, workers=0)
        loader = Loader(cache, CONFIG.optim.batch_size, part=team.part)
        options = Options(device="cpu", parallel="ddp")
        trainer = Trainer(CONFIG, options, loader, ([0.3], [0.35]), team=team)
        batches, seconds = loader.batches(0), []
        for _ in range(WARM_UP + steps):
            began, before = time.perf_counter(), float(trainer.meter.sums[2])
            trainer.train_step(trainer.prepare(*next(batches)))
            loss = float(trainer.meter.sums[2]) - before
            seconds.append(time.perf_counter() - began)
        batches.close()
    if rank == 0:
        torch.save((seconds[WARM_UP:], loss), Path(folder) / "measured.pt")


def turn(world: int, threads: int, steps: int) -> tuple[list[float], float]:
    with tempfile.TemporaryDirectory() as folder:
        # Decoded before several processes look for it.
        build_cache(open_source("builtin://digits/train"), None, folder, workers=0)
        mp.spawn(measure, (world, threads, steps, folder), nprocs=world)
        seconds, loss = torch.load(Path(folder) / "measured.pt")
    return seconds, loss


def main() -> None:
    wait_briefly(os.environ)  # as the command does
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args()
    n = asked.processes
    ways = {f"1 process x {n} threads": (1, n), f"{n} processes x 1 thread": (n, 1)}
    ways |= {"1 process x 1 thread": (1, 1)}
    found: dict[str, list[float]] = {name: [] for name in ways}
    losses = {}
    for _ in range(asked.turns):
        for name, (world, threads) in ways.items():
            seconds, losses[name] = turn(world, threads, asked.steps)
            found[name] += seconds
    first = statistics.median(next(iter(found.values())))
    print(f"{CONFIG.optim.batch_size} pictures a step, {asked.turns} turns of {asked.steps} steps")
    print(f"{'':24}{'ms a step':>10}{'ratio':>8}{'quartiles':>16}{'last loss':>12}")
    for name, seconds in found.items():
        low, middle, high = statistics.quantiles(seconds, n=4)
        span = f"{1e3 * low:.0f}-{1e3 * high:.0f}"
        row = f"{1e3 * middle:10.1f}{middle / first:8.2f}{span:>16}{losses[name]:12.5f}"
        print(f"{name:24}{row}")


if __name__ == "__main__":
    main()
