"""A training step as it is, beside the same step without its kernels or without compilation.

    python benchmarks/step.py [--batch 256] [--heads 16] [--size S] [--mask 0.2] [--only WORD ...]

One table: each variant's time and images a second, as ratios to the first too, and peak memory.
Pictures are random and lie on the device; the views are made once, and then once every step
(`with views`). The first variant runs again at the end: how far its two times differ is the noise.
`--only` takes the variants whose names hold one of the words: each compiles anew, for a minute or
more. On a CPU there is nothing to leave out but heads; take a small `--batch` and `--size T`.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from wessl.bench.pictures import pictures
from wessl.bench.steps import Subject, batch_shape, build_trainer
from wessl.bench.views import without_kernels
from wessl.config import Config, EncoderConfig, HeadsConfig, LossConfig, OptimConfig, Options
from wessl.encoder import kernels
from wessl.pretrain import trainer as training
from wessl.pretrain.loop import wait_for


@dataclass(frozen=True)
class Variant:
    name: str
    compile: str = "auto"
    kernels: bool = True
    heads: int | None = None
    graphs: bool | None = None
    """CUDA graphs: on, off, or None for the trainer's own choice."""


def variants(cuda: bool) -> list[Variant]:
    found = [Variant("as it is"), Variant("one head", heads=1)]
    if cuda:
        found += [
            Variant("eager", compile="off"),
            Variant("plain attention, GELU, norms, views", kernels=False),
            Variant("plain, eager", compile="off", kernels=False),
            Variant("CUDA graphs on", graphs=True),
            Variant("CUDA graphs off", graphs=False),
        ]
    return [*found, Variant("as it is, again")]


@contextmanager
def settings(variant: Variant) -> Iterator[None]:
    """The switches that users do not have: without kernels, with or without CUDA graphs."""
    before = kernels.in_half, kernels.stream, training.GRAPH_PICTURES
    if not variant.kernels:
        kernels.in_half, kernels.stream = (lambda x: False), (lambda x: x)
    if variant.graphs is not None:
        training.GRAPH_PICTURES = 2**30 if variant.graphs else 0
    try:
        with nullcontext() if variant.kernels else without_kernels():
            yield
    finally:
        kernels.in_half, kernels.stream, training.GRAPH_PICTURES = before
        torch._dynamo.reset()


def seconds(call: Callable[[], Any], device: torch.device, rounds: int) -> float:
    """The median of rounds, after three calls that do not count."""

    for _ in range(3):
        call()
    times = []
    for _ in range(rounds):
        wait_for(device)
        start = time.perf_counter()
        for _ in range(4):
            call()
        wait_for(device)
        times.append((time.perf_counter() - start) / 4)
    return sorted(times)[rounds // 2]


def measure(
    variant: Variant, config: Config, device: torch.device, rounds: int
) -> dict[str, float]:
    config = replace(config, heads=replace(config.heads, count=variant.heads or config.heads.count))
    batch = pictures(*batch_shape(config), device)
    indices = torch.arange(len(batch))
    with settings(variant):
        options = Options(device=str(device), compile=variant.compile)  # type: ignore[arg-type]
        start = time.perf_counter()
        trainer = build_trainer(Subject(variant.name, config, options), device)
        views = trainer.prepare(indices, batch)
        trainer.train_step(views)
        result = dict(first=time.perf_counter() - start)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

        def whole() -> tuple[Tensor, Tensor]:
            return trainer.train_step(trainer.prepare(indices, batch))

        result["step"] = seconds(lambda: trainer.train_step(views), device, rounds)
        result["whole"] = seconds(whole, device, rounds)
        if device.type == "cuda":
            result["memory"] = torch.cuda.max_memory_allocated(device) / 2**30
            torch.cuda.empty_cache()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--size", default="S")
    parser.add_argument("--mask", type=float, default=0.0, help="share of patches dropped, as MSN*")
    parser.add_argument("--only", nargs="*", default=[""], metavar="WORD")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    device = torch.device(args.device)
    config = Config(
        encoder=EncoderConfig(size=args.size),
        heads=HeadsConfig(count=args.heads, codes=1024),
        loss=LossConfig(mask=args.mask),
        optim=OptimConfig(batch_size=args.batch),
        precision="bf16" if device.type == "cuda" else "fp32",
    )
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}, ViT-{args.size}/16, batch {args.batch}, "
          f"{args.heads} heads, 2x224 + 10x96, {args.mask:.0%} masked")  # fmt: skip
    print(
        f"{'':36}{'ms':>8}{'img/s':>8}{'ratio':>7}{'with views':>12}{'GiB':>7}{'first step s':>14}"
    )
    base = None
    chosen = [
        v for v in variants(device.type == "cuda") if any(word in v.name for word in args.only)
    ]
    for variant in chosen:
        found = measure(variant, config, device, args.rounds)
        base = base or found["step"]
        print(
            f"{variant.name:36}{found['step'] * 1e3:8.1f}{args.batch / found['step']:8.0f}"
            f"{found['step'] / base:7.2f}{found['whole'] * 1e3:12.1f}"
            f"{found.get('memory', float('nan')):7.1f}{found['first']:14.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
