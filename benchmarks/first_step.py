"""Seconds from the start of a process to the end of its first training step, and where they go.

    python benchmarks/first_step.py [--batch 256] [--heads 16] [--size S] [--small] \\
        [--steps 40] [--warm]

A process of its own with nothing in torch's and Triton's caches imports, builds the trainer, makes
views and takes a step; ``--warm`` starts a second one on what the first left there. Then
``--steps`` further steps are timed, so that a quicker start that makes them slower is seen. Run it
on a machine with nothing else to do: compilers use every core.
"""

# ruff: noqa: E402
import time

BEGUN = time.time()

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--size", default="S")
    parser.add_argument("--small", action="store_true", help="2x64 + 6x32 pixels, patches of 8")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--warm", action="store_true", help="a second time, with full caches")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        print(json.dumps(measure(asked)))
        return
    with tempfile.TemporaryDirectory() as folder:
        caches = dict(
            TORCHINDUCTOR_CACHE_DIR=str(Path(folder) / "inductor"),
            TRITON_CACHE_DIR=str(Path(folder) / "triton"),
        )
        for name in ["nothing cached", *["full caches"] * asked.warm]:
            program = [sys.executable, *sys.argv, "--child"]
            begun = time.time()
            found = subprocess.run(
                program, env=os.environ | caches, stdout=subprocess.PIPE, check=True
            )
            print(line(name, begun, json.loads(found.stdout)), flush=True)


def measure(asked: argparse.Namespace) -> dict[str, Any]:
    """Marks of the clock, and the milliseconds of later steps."""
    marks = dict(python=BEGUN)
    import torch

    marks["torch"] = time.time()
    from wessl.bench.pictures import pictures
    from wessl.bench.steps import Subject, batch_shape, build_trainer
    from wessl.config import Config, EncoderConfig, HeadsConfig, OptimConfig
    from wessl.data.views.config import dino_views
    from wessl.pretrain.loop import wait_for

    marks["wessl"] = time.time()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    settings: dict[str, Any] = dict(
        heads=HeadsConfig(count=asked.heads, codes=256 if asked.small else 1024),
        optim=OptimConfig(batch_size=asked.batch),
        precision="bf16" if device.type == "cuda" else "fp32",
    )
    if asked.small:
        encoder = EncoderConfig(size=asked.size, patch_size=8, image_size=64)
        settings |= dict(encoder=encoder, views=dino_views(64, 32, 6), short_side=64)
    else:
        settings |= dict(encoder=EncoderConfig(size=asked.size))
    config = Config(**settings)
    trainer = build_trainer(Subject("first step", config), device)
    batch = pictures(*batch_shape(config), device)
    indices = torch.arange(len(batch))
    wait_for(device)
    marks["trainer"] = time.time()
    views = trainer.prepare(indices, batch)
    wait_for(device)
    marks["views"] = time.time()
    trainer.train_step(views)
    wait_for(device)
    marks["step"] = time.time()
    compiled = {}
    if trainer.compiled:
        found = torch._dynamo.utils.compile_times(repr="csv", aggregate=True)
        compiled = {name: float(value) for name, value in zip(*found, strict=True)}
    times = []
    for _ in range(asked.steps // 4):
        wait_for(device)
        begun = time.perf_counter()
        for _ in range(4):
            trainer.train_step(views)
        wait_for(device)
        times.append((time.perf_counter() - begun) / 4)
    milliseconds = 1e3 * sorted(times)[len(times) // 2] if times else None
    mean_loss = float(trainer.meter.sums[2] / trainer.meter.steps)
    return dict(marks=marks, milliseconds=milliseconds, loss=mean_loss, compiled=compiled)


def line(name: str, begun: float, found: dict[str, Any]) -> str:
    marks, last, parts = found["marks"], begun, []
    for mark, when in marks.items():
        parts.append(f"{mark} {when - last:.1f}")
        last = when
    words = f"{name:16} {last - begun:6.1f} s to the first step's end ({', '.join(parts)})"
    later = found["milliseconds"]
    slowest = sorted(found["compiled"].items(), key=lambda item: -item[1])[:14]
    told = ", ".join(f"{k.split('.')[-1]} {v:.1f}" for k, v in slowest)
    return f"{words}; later steps {later:.1f} ms, loss {found['loss']:.5f}\n    {told}"


if __name__ == "__main__":
    main()
