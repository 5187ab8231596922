"""``wessl demo``: what the heads bring, on built-in pictures, in minutes and without a GPU."""

import math
import multiprocessing
import os
import statistics
import sys
import time
from concurrent.futures import ProcessPoolExecutor, wait
from pathlib import Path
from typing import Any

import torch

from wessl.auto import duration
from wessl.commands.demo import Demo
from wessl.run import Run
from wessl.verbs.evaluate import evaluate
from wessl.verbs.pretrain import pretrain
from wessl.verbs.report import report

Results = dict[str, Any]
METHODS = {
    "dino-star": "1 head",
    "dino-star-unif": "16 heads, unif",
    "dino-star-ent": "16 heads, ent",
}
GAINING = [METHODS["dino-star-unif"], METHODS["dino-star-ent"]]
COLUMNS = ("1-shot", "2-shot", "5-shot", "k-NN")
DIGITS = "builtin://digits"


def demo(
    out: str = "runs/demo",
    epochs: float = 24,
    seeds: int = 3,
    draws: int = 30,
    head_width: int = 8,
) -> None:
    """Learn from 1,297 handwritten digits without their labels, then test with few labels.

    Trains one head and sixteen from several seeds, and compares them with raw pixels and an
    untrained encoder on 500 other digits. Run it again to see the table at once.
    """
    began = time.perf_counter()
    runs = train_all(Path(out), epochs, seeds, head_width)
    found = evaluate(
        [run.path for run in runs.values()],
        f"{DIGITS}/train",
        f"{DIGITS}/test",
        COLUMNS,
        draws=draws,
        device="cpu",
    )
    print_table(by_method(found["rows"], list(runs)))
    page = report([run.path for run in runs.values()], Path(out) / "report.html")
    print(
        f"{found['test']['pictures']} test digits, {mean_words(seeds, draws)} "
        f"({time.perf_counter() - began:.0f} s)\n{width_words(head_width)}"
        f"Look at {page}: its first sentence says what the sixteen heads brought."
    )


def mean_words(seeds: int, draws: int) -> str:
    if seeds == 1:
        return (
            "one training each. ± is a standard error over\n"
            f"{draws} draws of the labelled digits; gains have none, as another training is not "
            "known."
        )
    return (
        f"mean of {seeds} trainings. ± is a standard error over the trainings,\nas on the page; "
        f"for raw pixels and the random encoder, which there is one of, over {draws} draws\nof the "
        "labelled digits."
    )


def width_words(head_width: int) -> str:
    """The gain is one of room, and whoever sees the table should know it."""
    if head_width >= 64:
        return ""
    return (
        f"Each head has only {head_width} numbers to describe a digit in, so that one is short of "
        "room; with\n--head-width 64 one head is nearly as good on these digits as sixteen.\n"
    )


def train_all(out: Path, epochs: float, seeds: int, head_width: int) -> dict[tuple[str, int], Run]:
    """All runs side by side, one thread each: so small a network gains nothing from more."""
    spawn = multiprocessing.get_context("spawn")
    names = [(recipe, seed) for recipe in METHODS for seed in range(seeds)]
    folders = [folder(out, *name) for name in names]
    began, before = time.perf_counter(), share_done(folders)
    workers = min(len(names), os.cpu_count() or 1)
    with ProcessPoolExecutor(workers, spawn, torch.set_num_threads, (1,)) as pool:
        jobs = {name: pool.submit(train_one, out, epochs, head_width, *name) for name in names}
        while not all(job.done() for job in jobs.values()):
            wait(jobs.values(), timeout=10)
            say_progress(folders, time.perf_counter() - began, before)
        return {name: job.result() for name, job in jobs.items()}


def folder(out: Path, recipe: str, seed: int) -> Path:
    return out / f"{recipe}-seed{seed}"


def train_one(out: Path, epochs: float, head_width: int, recipe: str, seed: int) -> Run:
    return pretrain(
        f"{DIGITS}/train",
        folder(out, recipe, seed),
        recipe,
        quiet=True,
        epochs=epochs,
        seed=seed,
        embed_dim=head_width,
        teacher_temperature=0.05,
        teacher_temperature_start=0.05,
        device="cpu",
        log_every=20,
        probe_every=epochs / 4,
    )


def say_progress(folders: list[Path], seconds: float, before: float) -> None:
    """One line for all runs: how many are done, how far the work is, and how long it will take.

    ``before`` is the share that was done already when it began, ``seconds`` ago.
    """
    done, total = share_done(folders), len(folders)
    ended = sum(row["step"] == row["steps"] for row in last_rows(folders))
    left = seconds * (1 - done) / (done - before) if done > before else None
    words = f", {duration(left)} left" if left else ""
    print(
        f"training {total} encoders: {100 * done:.0f} %, {ended} of them done{words}",
        file=sys.stderr,
        flush=True,
    )


def share_done(folders: list[Path]) -> float:
    return sum(row["step"] / row["steps"] for row in last_rows(folders)) / len(folders)


def last_rows(folders: list[Path]) -> list[dict[str, Any]]:
    """What the runs that have begun wrote last of their steps."""
    rows = ([row for row in Run(path).read_metrics() if "loss" in row] for path in folders)
    return [of_run[-1] for of_run in rows if of_run]


def by_method(rows: list[dict[str, Any]], names: list[tuple[str, int]]) -> dict[str, list[Results]]:
    """The results of each method's trainings, after those of the baselines."""
    methods: dict[str, list[Results]] = {
        row["name"]: [row["results"]] for row in rows if row["role"] in ("pixels", "random")
    }
    trained = (row["results"] for row in rows if row["role"] == "run")
    for (recipe, _), results in zip(names, trained, strict=True):
        methods.setdefault(METHODS[recipe], []).append(results)
    return methods


def print_table(rows: dict[str, list[Results]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Accuracy in %: 1, 2 and 5 labels a class; k-NN, all labels")
    for column in ("", *COLUMNS):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    for name, results in rows.items():
        table.add_row(name, *(cell(results, column) for column in COLUMNS))
    table.add_section()
    base = rows[METHODS["dino-star"]]
    for name in GAINING:
        told = (gain(rows[name], base, column) for column in COLUMNS)
        table.add_row(gain_name(name), *told)
    Console().print(table)


def gain_name(name: str) -> str:
    return f"gain, {name.split()[-1]}"


def cell(results: list[Results], column: str) -> str:
    """The mean ± its standard error over the trainings; of one result, over its draws."""
    found = [result[column]["accuracy"] for result in results]
    values = found if len(found) > 1 else results[0][column].get("per_draw", [])
    mean = f"{100 * statistics.fmean(found):.1f}"
    if len(values) < 2:
        return mean
    return f"{mean} ± {100 * statistics.stdev(values) / math.sqrt(len(values)):.1f}"


def gain(results: list[Results], base: list[Results], column: str) -> str:
    """Mean over the trainings of the gain on the same draws, ± its standard error over them."""
    pairs = zip(results, base, strict=True)
    gains = [100 * (r[column]["accuracy"] - b[column]["accuracy"]) for r, b in pairs]
    mean = f"{statistics.fmean(gains):+.1f}"
    if len(gains) == 1:
        return mean
    return f"{mean} ± {statistics.stdev(gains) / math.sqrt(len(gains)):.1f}"


def command(asked: Demo) -> None:
    demo(**vars(asked))
