"""A training step as it is, beside the same step without its kernels or without compilation.

    python benchmarks/step.py [--batch 256] [--heads 16] [--size S] [--device cuda]

One table: each variant's time and images a second, as ratios to the first too, and peak memory.
Pictures are random and lie on the device; the views are made once, and then once every step
(`with views`). The first variant runs again at the end: how far its two times differ is the noise.
On a CPU there is nothing to leave out but heads; take a small `--batch` and `--size T`.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from wessl.config import Config, EncoderConfig, HeadsConfig, OptimConfig, Options
from wessl.data import kernels as view_kernels
from wessl.data.cache import Batch
from wessl.encoder import kernels
from wessl.pretrain import trainer as training
from wessl.pretrain.trainer import Trainer


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
            Variant("plain attention, GELU, views", kernels=False),
            Variant("plain, eager", compile="off", kernels=False),
            Variant("CUDA graphs on", graphs=True),
            Variant("CUDA graphs off", graphs=False),
        ]
    return [*found, Variant("as it is, again")]


@contextmanager
def settings(variant: Variant) -> Iterator[None]:
    """The switches that users do not have: without kernels, with or without CUDA graphs."""
    before = kernels.in_half, kernels.stream, view_kernels.usable, training.GRAPH_PICTURES
    if not variant.kernels:
        kernels.in_half, kernels.stream = (lambda x: False), (lambda x: x)
        view_kernels.usable = lambda pixels, crop: False
    if variant.graphs is not None:
        training.GRAPH_PICTURES = 2**30 if variant.graphs else 0
    try:
        yield
    finally:
        kernels.in_half, kernels.stream, view_kernels.usable, training.GRAPH_PICTURES = before
        torch._dynamo.reset()


def pictures(count: int, device: torch.device) -> Batch:
    random = torch.Generator(device).manual_seed(0)
    shape = (count, 256, 341, 3)
    pixels = torch.randint(0, 256, shape, generator=random, dtype=torch.uint8, device=device)
    sides = (torch.full((count,), side, device=device) for side in shape[1:3])
    return Batch(pixels, *sides)


def seconds(call: Callable[[], Any], device: torch.device, rounds: int) -> float:
    """The median of rounds, after three calls that do not count."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    for _ in range(3):
        call()
    times = []
    for _ in range(rounds):
        wait()
        start = time.perf_counter()
        for _ in range(4):
            call()
        wait()
        times.append((time.perf_counter() - start) / 4)
    return sorted(times)[rounds // 2]


def measure(
    variant: Variant, config: Config, device: torch.device, rounds: int
) -> dict[str, float]:
    config = replace(config, heads=replace(config.heads, count=variant.heads or config.heads.count))
    batch, indices = (
        pictures(config.optim.batch_size, device),
        torch.arange(config.optim.batch_size),
    )
    with settings(variant):
        loader: Any = SimpleNamespace(device=device, steps_per_epoch=1000)
        options = Options(device=str(device), compile=variant.compile)  # type: ignore[arg-type]
        start = time.perf_counter()
        trainer = Trainer(config, options, loader, ([0.5] * 3, [0.25] * 3))
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
            result["memory"] = torch.cuda.max_memory_reserved(device) / 2**30
            torch.cuda.empty_cache()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--size", default="S")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    device = torch.device(args.device)
    config = Config(
        encoder=EncoderConfig(size=args.size),
        heads=HeadsConfig(count=args.heads, codes=1024),
        optim=OptimConfig(batch_size=args.batch),
        precision="bf16" if device.type == "cuda" else "fp32",
    )
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}, ViT-{args.size}/16, batch {args.batch}, "
          f"{args.heads} heads, 2x224 + 10x96")  # fmt: skip
    print(
        f"{'':32}{'ms':>8}{'img/s':>8}{'ratio':>7}{'with views':>12}{'GiB':>7}{'first step s':>14}"
    )
    base = None
    for variant in variants(device.type == "cuda"):
        found = measure(variant, config, device, args.rounds)
        base = base or found["step"]
        print(
            f"{variant.name:32}{found['step'] * 1e3:8.1f}{args.batch / found['step']:8.0f}"
            f"{found['step'] / base:7.2f}{found['whole'] * 1e3:12.1f}"
            f"{found.get('memory', float('nan')):7.1f}{found['first']:14.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
