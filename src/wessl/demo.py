"""``wessl demo``: what the heads bring, on built-in pictures, in minutes and without a GPU."""

import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wessl import api
from wessl.data.cache import PictureCache, build_cache
from wessl.data.sources import open_source
from wessl.errors import UserError
from wessl.evaluate.features import TrainedEncoder, extract, load
from wessl.evaluate.suite import Labelled, few_shot, nearest_neighbours, paired_gain
from wessl.run import Run

Results = dict[str, Any]
METHODS = {
    "dino-star": "1 head (DINO*)",
    "dino-star-unif": "16 heads, equal weights",
    "dino-star-ent": "16 heads, entropy weights",
}
SHOTS = (1, 2, 5)


def demo(out: str = "runs/demo", epochs: float = 60, seed: int = 0, draws: int = 30) -> None:
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
    train, test = (open_picture_set(f"builtin://digits/{part}") for part in ("train", "test"))
    if train.labels is None or test.labels is None:
        raise UserError("the built-in digits have lost their labels: scikit-learn is damaged")
    rows = {"raw pixels": measure(pixels(train), pixels(test), train, test, draws)}
    for number, (recipe, name) in enumerate(METHODS.items(), 1):
        print(f"[{number}/{len(METHODS)}] {name}", flush=True)
        run = api.pretrain(
            "builtin://digits/train",
            Path(out) / recipe,
            recipe,
            epochs=epochs,
            seed=seed,
            device="cpu",
            probe_every=epochs,
        )
        if number == 1:
            rows["untrained encoder"] = measure_encoder(untrained(run), train, test, draws)
        rows[name] = measure_encoder(load(run.path), train, test, draws)
        run.save_result("demo", rows[name])
    print()
    print_table(rows)
    print(
        f"\n{len(test)} test digits, {draws} draws of the labelled ones; ± is the standard error.\n"
        f"Runs, with every number and its protocol: {out}/*/results/demo.json "
        f"({time.perf_counter() - began:.0f} s)"
    )


def open_picture_set(name: str) -> PictureCache:
    return build_cache(open_source(name), None)


def pixels(cache: PictureCache) -> Tensor:
    return cache.batch(torch.arange(len(cache))).pixels.flatten(1).float() / 255


def untrained(run: Run) -> TrainedEncoder:
    """The run's encoder as it was before the first step."""
    from wessl.config import Config, from_dict
    from wessl.pretrain.model import build_model

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

    table = Table(title="Accuracy with few labels, %")
    table.add_column("")
    for n in SHOTS:
        table.add_column(f"{n} label{'s' * (n > 1)} a class", justify="right")
    table.add_column("k-NN, all labels", justify="right")
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
        table.add_row(f"gain of {METHODS[recipe]}", *cells, f"{100 * near:+.1f}")
    Console().print(table)
