"""The first table of docs/speed.md: our steps beside a peer's and a plain one, in turns in one run.

    python benchmarks/speed.py [--only WORD ...] [--rounds 10] [--at-once 4] [--json FILE]

`--only` takes rows whose names have a WORD in them, or the one of just that name.

On a GPU, 2x224 + 10x96 in bf16, random pictures on the device. Each row has a process of its own,
as a training has; `--at-once` of them build and compile at a time. When all of a size and batch are
ready they take turns: a step that does not count, four that do, then its memory is given back (not
that of CUDA graphs, which all of a size must find room for). The share is that of the rate at which
the device multiplies large matrices, measured first. A peer's rows are left out where its packages
are not installed. First steps are told too, but rows share the cores while they compile:
`first_step.py` measures one alone. The peers are `pip install timm lightly`.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch

from peers import LightlyDino, TimmDino, installed
from wessl._version import versions
from wessl.bench.pictures import pictures
from wessl.bench.rate import matrix_rate
from wessl.bench.record import machine, made
from wessl.bench.steps import (
    Subject,
    batch_shape,
    build_and_weigh,
    build_trainer,
    plain_step,
    views_of,
)
from wessl.bench.turns import Work
from wessl.config import Config, HeadsConfig, Options
from wessl.errors import UserError
from wessl.pretrain.cost import flops_per_image
from wessl.pretrain.loop import wait_for
from wessl.recipes import recipe
from wessl.settings import override
from wessl.verbs.bench import refuse_unwritable

STEPS = 4
"""That are timed in a turn."""

PEERS = {"timm": TimmDino, "lightly": LightlyDino}
NEEDED = {"timm": ["timm"], "lightly": ["timm", "lightly"]}
"""By a peer's row."""

GROUPS: dict[str, dict[str, Any]] = {
    "ViT-S/16, batch 256": {"optim.batch_size": 256},
    "ViT-S/16, batch 64": {"optim.batch_size": 64},
    "ViT-B/16, batch 128": {"encoder.size": "B", "optim.batch_size": 128},
    "ViT-B/16, batch 256": {"encoder.size": "B", "optim.batch_size": 256},
}


@dataclass(frozen=True)
class Row:
    group: str
    name: str
    way: Literal["wessl", "plain step", "timm", "lightly"] = "wessl"
    compile: bool = True
    views: bool = False
    """Measured a second time with views made every step."""
    recipe: str | None = None
    """Instead of the paper's settings with 16 heads of 1,024 codes."""
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def config(self) -> Config:
        base = recipe(self.recipe) if self.recipe else Config(heads=HeadsConfig(16, codes=1024))
        return override(base, {"precision": "bf16"} | GROUPS[self.group] | self.settings)

    @property
    def label(self) -> str:
        return f"{self.group}, {self.name}"

    def answers_to(self, word: str, labels: set[str]) -> bool:
        return word == self.label if word in labels else word in self.label

    def build(self, device: torch.device) -> dict[str, Work]:
        """The step, and the step with its views."""
        options = Options(device=str(device), compile="on" if self.compile else "off")
        subject = Subject(self.name, self.config, options)
        if self.way == "plain step":
            return dict(step=plain_step(subject, device, views_of(subject, device)))
        if self.way in PEERS:
            size = {"S": "small", "B": "base"}[self.config.encoder.size]
            views, peer = views_of(subject, device), PEERS[self.way](device, size)
            if self.compile:
                peer.compile()
            return dict(step=partial(peer.step, views.student, views.n))
        trainer = build_trainer(subject, device)
        batch = pictures(*batch_shape(self.config), device)
        indices = torch.arange(len(batch))
        works: dict[str, Work] = dict(
            step=partial(trainer.train_step, trainer.prepare(indices, batch))
        )
        if self.views:
            works["views"] = lambda: trainer.train_step(trainer.prepare(indices, batch))
        return works


SMALL, FEW, LARGE, LARGE_MANY = GROUPS
DINO, MSN = "dino/vits16", "msn-star-ent/vits16"
PEER, LIGHTLY = "timm's ViT, DINO in plain PyTorch", "timm's ViT, DINO of lightly's parts"
ROWS = [
    Row(SMALL, f"{LIGHTLY}, not compiled", "lightly", False, recipe=DINO),
    Row(SMALL, LIGHTLY, "lightly", recipe=DINO),
    Row(SMALL, f"{PEER}, not compiled", "timm", False, recipe=DINO),
    Row(SMALL, PEER, "timm", recipe=DINO),
    Row(SMALL, "DINO: one head of 65,536 codes", recipe=DINO),
    Row(SMALL, "16 heads, a loop over heads and views, not compiled", "plain step", False),
    Row(SMALL, "16 heads, not compiled", compile=False),
    Row(SMALL, "one head", settings={"heads.count": 1}),
    Row(SMALL, "4 heads", settings={"heads.count": 4}),
    Row(SMALL, "16 heads", views=True),
    Row(SMALL, "64 heads", settings={"heads.count": 64}),
    Row(SMALL, "16 heads, a fifth of the patches masked", settings={"loss.mask": 0.2}),
    Row(SMALL, "MSN*-ent, 8 heads, nothing masked", recipe=MSN, settings={"loss.mask": 0.0}),
    Row(SMALL, "MSN*-ent, 8 heads", recipe=MSN),
    Row(FEW, f"{LIGHTLY}, not compiled", "lightly", False, recipe=DINO),
    Row(FEW, f"{PEER}, not compiled", "timm", False, recipe=DINO),
    Row(FEW, PEER, "timm", recipe=DINO),
    Row(FEW, "16 heads", views=True),
    Row(LARGE, PEER, "timm", recipe=DINO),
    Row(LARGE, "one head", settings={"heads.count": 1}),
    Row(LARGE, "4 heads", settings={"heads.count": 4}),
    Row(LARGE, "16 heads"),
    Row(LARGE_MANY, "one head", settings={"heads.count": 1}),
    Row(LARGE_MANY, "16 heads"),
]


def serve(row: Row, device: torch.device) -> None:
    """A row's process: builds, then takes a turn for every line it is sent."""
    # A ViT that is given two sizes of views is compiled for each, as a training of its own would.
    torch._dynamo.config.automatic_dynamic_shapes = False
    begun, works = time.time(), {}

    def build() -> Work:
        works.update(row.build(device))
        return works["step"]

    _, memory = build_and_weigh(build, device)
    ready = dict(gib=memory / 2**30, ready=time.time() - begun)
    for work in works.values():
        turn(work, device)
    answer(ready, device)
    for _ in sys.stdin:
        answer({name: turn(work, device) for name, work in works.items()}, device)


def turn(step: Work, device: torch.device) -> float:
    """Milliseconds of a step."""
    step()
    wait_for(device)
    begun = time.perf_counter()
    for _ in range(STEPS):
        step()
    wait_for(device)
    return 1e3 * (time.perf_counter() - begun) / STEPS


def answer(found: dict[str, float], device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()
    print(json.dumps(found), flush=True)


class Ended(Exception):
    """A row's process did, before its time."""


def start(row: Row) -> "Process | None":
    try:
        return Process(row)
    except Ended as error:
        print(error, flush=True)
        return None


class Process:
    """The other end of ``serve``."""

    def __init__(self, row: Row):
        self.row = row
        program = [sys.executable, __file__, "--row", str(ROWS.index(row))]
        self.child = subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.facts = self.hear()
        self.rounds: list[dict[str, float]] = []
        print(f"{row.label}: ready after {self.facts['ready']:.0f} s", flush=True)

    def hear(self) -> dict[str, float]:
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        if not line:
            raise Ended(f"{self.row.label}: ended with {self.child.wait()}")
        return json.loads(line)

    def take_turn(self) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write("turn\n")
        self.child.stdin.flush()
        self.rounds.append(self.hear())

    def end(self) -> None:
        self.child.communicate()

    def result(self, rate: float) -> dict[str, Any]:
        """All there is to tell after the rounds so far."""
        row, n = self.row, self.row.config.optim.batch_size
        times = {name: [found[name] for found in self.rounds] for name in self.rounds[0]}
        middle = statistics.median(times["step"])
        return dict(
            group=row.group,
            name=row.name,
            milliseconds=middle,
            rounds=times["step"],
            with_views=statistics.median(times["views"]) if "views" in times else None,
            rounds_with_views=times.get("views"),
            images=1e3 * n / middle,
            share=n * flops_per_image(row.config) / (middle / 1e3) / rate,
            gib=self.facts["gib"],
            ready=self.facts["ready"],
        )


def print_table(found: list[dict[str, Any]]) -> None:
    print(f"\n{found[0]['group']:54}{'ms':>8}{'range':>14}{'with views':>12}{'img/s':>8}"
          f"{'share':>7}{'GiB':>7}")  # fmt: skip
    for row in found:
        between = f"{min(row['rounds']):.1f}-{max(row['rounds']):.1f}"
        views = "" if row["with_views"] is None else f"{row['with_views']:.1f}"
        print(f"{row['name']:54}{row['milliseconds']:8.1f}{between:>14}{views:>12}"
              f"{row['images']:8.0f}{row['share']:7.0%}{row['gib']:7.1f}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", nargs="*", default=[""], metavar="WORD")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--at-once", type=int, default=4, help="rows that compile at a time")
    parser.add_argument("--json", help="file for every number")
    parser.add_argument("--row", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if asked.row is not None:
        serve(ROWS[asked.row], device)
        return
    if device.type == "cpu":
        sys.exit("these sizes want a GPU, and torch sees none; `wessl bench` measures a CPU")
    if asked.rounds < 1 or asked.at_once < 1:
        sys.exit("--rounds and --at-once must be 1 or more")
    if asked.json:
        try:
            refuse_unwritable(Path(asked.json))
        except UserError as error:
            sys.exit(str(error))
    labels = {row.label for row in ROWS}
    for word in asked.only:
        if not any(row.answers_to(word, labels) for row in ROWS):
            sys.exit("\n  ".join([f"--only {word!r}: no such row; there are", *sorted(labels)]))
    rows = [row for row in ROWS if any(row.answers_to(word, labels) for word in asked.only)]
    packages = [name for name in ("timm", "lightly") if installed(name)]
    missing = {name for row in rows for name in NEEDED.get(row.way, []) if name not in packages}
    rows = [row for row in rows if not missing.intersection(NEEDED.get(row.way, []))]
    if not rows:
        sys.exit(f"no row is left; pip install {' '.join(sorted(missing))}")
    rate = matrix_rate(device, torch.bfloat16)
    print(f"{rate / 1e12:.0f} TFLOP/s in products of large matrices", flush=True)
    about = dict(machine=machine(device), versions=versions("torch", *packages))
    begun = made()
    found: list[dict[str, Any]] = []
    for group in GROUPS:
        of_group: list[dict[str, Any]] = []
        for of_group in measured([r for r in rows if r.group == group], rate, asked):
            if asked.json:  # a run that is cut short leaves what it has
                run = dict(made=begun, rate=rate, rows=found + of_group)
                record = about | dict(steps_a_turn=STEPS, runs=[run])
                Path(asked.json).write_text(json.dumps(record, indent=1))
        found += of_group
    for group in GROUPS:
        if of_group := [row for row in found if row["group"] == group]:
            print_table(of_group)


def measured(
    rows: list[Row], rate: float, asked: argparse.Namespace
) -> Iterator[list[dict[str, Any]]]:
    """All there is to tell of these rows, after every round."""
    if not rows:
        return
    with ThreadPoolExecutor(asked.at_once) as threads:
        built = list(threads.map(start, rows))
    # Several that record CUDA graphs at a time may want more memory than there is, one alone less.
    again = [p or start(row) for p, row in zip(built, rows, strict=True)]
    processes = [p for p in again if p is not None]
    for row in (row for p, row in zip(again, rows, strict=True) if p is None):
        print(f"left out: {row.label}", flush=True)
    if not processes:
        return
    for done in range(1, asked.rounds + 1):
        for process in processes:
            process.take_turn()
        print(f"round {done} of {asked.rounds}", flush=True)
        yield [process.result(rate) for process in processes]
    for process in processes:
        process.end()


if __name__ == "__main__":
    main()
