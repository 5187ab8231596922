"""``wessl demo``: what the heads bring, on built-in pictures, in minutes and without a GPU."""

import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wessl import api
from wessl.config import Config, from_dict
from wessl.data.cache import PictureCache, build_cache
from wessl.data.sources import open_source
from wessl.evaluate.features import TrainedEncoder, extract, load
from wessl.evaluate.suite import Labelled, few_shot, nearest_neighbours, paired_gain
from wessl.pretrain.model import build_model
from wessl.run import Run

Results = dict[str, Any]
METHODS = {
    "dino-star": "1 head",
    "dino-star-unif": "16 heads, unif",
    "dino-star-ent": "16 heads, ent",
}
SHOTS = (1, 2, 5)
DIGITS = "builtin://digits"


def demo(out: str = "runs/demo", epochs: float = 30, seed: int = 0, draws: int = 30) -> None:
    """Learn from 1,297 handwritten digits without their labels, then test with few labels.

    Trains one head and sixteen, and compares them with raw pixels and an untrained encoder on 500
    other digits. Run it again to see the table at once.

    Args:
        out: Folder for the runs.
        epochs: Passes over the pictures.
        seed: Seed of the runs.
        draws: How often the few labelled pictures are drawn.
    """
    began = time.perf_counter()
    train, test = (build_cache(open_source(f"{DIGITS}/{part}"), None) for part in ("train", "test"))
    runs = train_all(Path(out), epochs, seed)
    first = runs["dino-star"]
    rows = {
        "raw pixels": measure(pixels(train), pixels(test), train, test, draws),
        "untrained encoder": measure_encoder(untrained(first), train, test, draws),
    }
    for recipe, name in METHODS.items():
        rows[name] = measure_encoder(load(runs[recipe].path), train, test, draws)
        runs[recipe].save_result("demo", rows[name])
    print_table(rows)
    print(
        f"{len(test)} test digits, {draws} draws of the labelled ones; ± is the standard error\n"
        f"over draws, and gains compare the same draws. Every number with its protocol:\n"
        f"{out}/*/results/demo.json ({time.perf_counter() - began:.0f} s)"
    )


def train_all(out: Path, epochs: float, seed: int) -> dict[str, Run]:
    """All runs side by side, one thread each: so small a network gains nothing from more."""
    spawn = multiprocessing.get_context("spawn")
    workers = min(len(METHODS), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, spawn, torch.set_num_threads, (1,)) as pool:
        jobs = {
            recipe: pool.submit(train_one, recipe, out / recipe, epochs, seed) for recipe in METHODS
        }
        while not all(job.done() for job in jobs.values()):
            wait(jobs.values(), timeout=10)
            say_progress(out)
        return {recipe: job.result() for recipe, job in jobs.items()}


def train_one(recipe: str, out: Path, epochs: float, seed: int) -> Run:
    return api.pretrain(
        f"{DIGITS}/train",
        out,
        recipe,
        quiet=True,
        epochs=epochs,
        seed=seed,
        device="cpu",
        log_every=20,
        probe_every=epochs,
    )


def say_progress(out: Path) -> None:
    parts = []
    for recipe, name in METHODS.items():
        rows = [row for row in Run(out / recipe).read_metrics() if "loss" in row]
        if rows:
            parts.append(f"{name}: step {rows[-1]['step']}/{rows[-1]['steps']}")
    print("; ".join(parts) or "starting", file=sys.stderr, flush=True)


def pixels(cache: PictureCache) -> Tensor:
    return cache.batch(torch.arange(len(cache))).pixels.flatten(1).float() / 255


def untrained(run: Run) -> TrainedEncoder:
    """The run's encoder as it was before the first step."""
    config = from_dict(Config, run.read_config()["config"])
    return TrainedEncoder(build_model(config).encoder, load(run.path).description)


def measure_encoder(
    encoder: TrainedEncoder, train: PictureCache, test: PictureCache, draws: int
) -> Results:
    return measure(extract(encoder, train), extract(encoder, test), train, test, draws)


def measure(x: Tensor, z: Tensor, train: PictureCache, test: PictureCache, draws: int) -> Results:
    assert train.labels is not None
    assert test.labels is not None
    known, unknown = Labelled(x, train.labels), Labelled(z, test.labels)
    results: Results = {f"{n}-shot": few_shot(known, unknown, n, draws) for n in SHOTS}
    return results | {"k-NN": nearest_neighbours(known, unknown)}


def print_table(rows: dict[str, Results]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Accuracy in % with 1, 2 and 5 labels a class, and k-NN with all labels")
    for column in ("", *(f"{n}-shot" for n in SHOTS), "k-NN"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, result in rows.items():
        cells = [
            f"{100 * result[f'{n}-shot']['accuracy']:.1f} "
            f"± {100 * result[f'{n}-shot']['standard_error']:.1f}"
            for n in SHOTS
        ]
        table.add_row(name, *cells, f"{100 * result['k-NN']['accuracy']:.1f}")
    base = rows[METHODS["dino-star"]]
    table.add_section()
    for recipe in ("dino-star-unif", "dino-star-ent"):
        gains = [paired_gain(rows[METHODS[recipe]][f"{n}-shot"], base[f"{n}-shot"]) for n in SHOTS]
        cells = [f"{100 * gain:+.1f} ± {100 * error:.1f}" for gain, error in gains]
        near = rows[METHODS[recipe]]["k-NN"]["accuracy"] - base["k-NN"]["accuracy"]
        table.add_row(f"gain, {METHODS[recipe].split(', ')[1]}", *cells, f"{100 * near:+.1f}")
    Console().print(table)
