"""Heads and loss of an ensemble: stacked and folded, against the obvious ways to write them.

The same work, forward and backward, side by side in one run:

- batched: ``EnsembleHeads`` and ``multiview_loss``, m heads at once;
- m x one: the single-head code, called m times;
- loop: the paper's Algorithm 2 as written, for every view a Python loop over a list of heads, for
  every pair of views a loss;
- loop, views joined: the same loop once over the views laid end to end.

    python benchmarks/heads.py [--heads 16] [--images 16] [--rounds 9]

Times are medians of rounds that take turns; memory is the peak of a fresh process above what it
had before the first step. All are printed as ratios to `batched`.
"""

import argparse
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wessl import EnsembleHeads, multiview_loss, sharpen

Step = Callable[[Tensor, Tensor], Tensor]
STUDENT, TEACHER, GAMMA = 0.1, 0.025, 0.3


def batched(m: int, dim: int, hidden: int, codes: int) -> Step:
    student = EnsembleHeads(dim, m, hidden, num_codes=codes)
    teacher = EnsembleHeads(dim, m, hidden, num_codes=codes).requires_grad_(False)

    def step(xs_vnd: Tensor, xt_und: Tensor) -> Tensor:
        def views(heads: EnsembleHeads, x: Tensor) -> Tensor:
            return heads(x.flatten(0, 1)).unflatten(1, x.shape[:2]).transpose(0, 1)

        targets = sharpen(views(teacher, xt_und).flatten(0, 1), TEACHER).unflatten(0, (-1, m))
        return multiview_loss(views(student, xs_vnd) / STUDENT, targets, "ent", GAMMA)

    return step


def m_times_one(m: int, dim: int, hidden: int, codes: int) -> Step:
    steps = [batched(1, dim, hidden, codes) for _ in range(m)]
    return lambda xs, xt: sum((step(xs, xt) for step in steps), torch.zeros(())) / m


def loop(m: int, dim: int, hidden: int, codes: int, join: bool = False) -> Step:
    def make() -> tuple[list[nn.Module], list[nn.Parameter]]:
        mlps: list[nn.Module] = [
            nn.Sequential(
                nn.Linear(dim, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU(),
                nn.Linear(hidden, 256),
            )
            for _ in range(m)
        ]  # fmt: skip
        return mlps, [nn.Parameter(0.02 * torch.randn(256, codes)) for _ in range(m)]

    student, teacher = make(), make()

    def log_probs(heads: tuple[list[nn.Module], list[nn.Parameter]], z: Tensor, tau: float):
        out = []
        for mlp, mu in zip(*heads, strict=True):
            e = mlp(z)
            cosines = (e @ mu) / (e.norm(dim=1, keepdim=True) * mu.norm(dim=0, keepdim=True))
            out.append(F.log_softmax(cosines / tau, -1))
        return torch.stack(out, 1)

    def of_views(heads: tuple[list[nn.Module], list[nn.Parameter]], x_vnd: Tensor, tau: float):
        if join:
            return log_probs(heads, x_vnd.flatten(0, 1), tau).unflatten(0, x_vnd.shape[:2])
        return [log_probs(heads, x, tau) for x in x_vnd]

    def step(xs_vnd: Tensor, xt_und: Tensor) -> Tensor:
        log_ps = of_views(student, xs_vnd, STUDENT)
        with torch.no_grad():
            log_pt = of_views(teacher, xt_und, TEACHER)
        losses = []
        for u, pt in enumerate(log_pt):
            for v, ps in enumerate(log_ps):
                if u != v:
                    entropy = -(pt.exp() * pt).sum(-1)
                    weight = (-entropy / GAMMA).softmax(1)
                    losses.append((-(pt.exp() * ps).sum(-1) * weight).sum(1).mean())
        return torch.stack(losses).mean()

    return step


WAYS = {
    "batched": batched,
    "m x one": m_times_one,
    "loop": loop,
    "loop, views joined": partial(loop, join=True),
}


def run_once(step: Step, xs: Tensor, xt: Tensor) -> float:
    start = time.perf_counter()
    step(xs, xt).backward()
    return time.perf_counter() - start


def inputs(args: argparse.Namespace) -> tuple[Tensor, Tensor]:
    return torch.randn(args.views, args.images, args.dim), torch.randn(2, args.images, args.dim)


def build(way: str, args: argparse.Namespace) -> Step:
    return WAYS[way](args.heads, args.dim, args.hidden, args.codes)


def high_water_mib() -> float:
    """Linux's own high-water mark of this process, which unlike getrusage's starts at exec."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


def peak_mib(way: str) -> float:
    """Runs one step of one way in a fresh process and reads its peak memory."""
    words = [sys.executable, __file__, *sys.argv[1:], "--memory", way]
    return float(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name, default in dict(
        heads=16, images=16, views=12, dim=384, hidden=1024, codes=1024, rounds=9
    ).items():
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--memory", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.memory:
        step, (xs, xt) = build(args.memory, args), inputs(args)
        before = high_water_mib()
        run_once(step, xs, xt)
        print(high_water_mib() - before)
        return

    steps, (xs, xt) = {way: build(way, args) for way in WAYS}, inputs(args)
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(args.rounds + 1):
        for way, step in steps.items():
            seconds = run_once(step, xs, xt)
            if turn:  # the first turn warms up
                times[way].append(seconds)
    seconds = {way: statistics.median(times[way]) for way in WAYS}
    memory = {way: peak_mib(way) for way in WAYS}
    print(
        f"m={args.heads} heads, c={args.codes}, {args.images} images, {args.views} + 2 views, ",
        end="",
    )
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{'way':18} {'ms':>8} {'ratio':>7} {'peak MiB':>10} {'ratio':>7}")
    for way in WAYS:
        ratio, size = seconds[way] / seconds["batched"], memory[way] / memory["batched"]
        print(f"{way:18} {1e3 * seconds[way]:8.0f} {ratio:7.2f} {memory[way]:10.0f} {size:7.2f}")


if __name__ == "__main__":
    main()
