"""``wessl doctor``'s ten seconds: is this machine as fast as it should be, roughly?

Each number is the median of what fits into a few seconds, with other work still running.
"""

import io
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from wessl.data.decoding.decode import PixelFormat, decode
from wessl.data.sources.open import cache_directory
from wessl.encoder.vit import ViT
from wessl.ensemble.heads import EnsembleHeads
from wessl.ensemble.loss import multiview_loss
from wessl.ensemble.targets import sinkhorn
from wessl.matrix_products import matmul

Record = dict[str, Any]
SECONDS = 2.5
"""For each of the four; the first round, which warms up, is not counted."""


def measure() -> Record:
    """Training step, matrix product, decoding and writing; an error in words where one fails."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    looks: dict[str, Callable[[], str]] = {
        "step": lambda: step(device),
        "matrix product": lambda: product(device),
        "decode": decoding,
        "disk": writing,
    }
    found: Record = {}
    for name, look in looks.items():
        try:
            found[name] = look()
        except Exception as error:  # a broken part is a finding like others
            found[name] = f"failed: {type(error).__name__}: {error}"
    return found


def rounds(work: Callable[[], object], device: torch.device | None = None) -> float:
    """Median seconds of a round."""
    times: list[float] = []
    began = time.perf_counter()
    while len(times) < 2 or time.perf_counter() - began < SECONDS:
        start = time.perf_counter()
        work()
        if device is not None and device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def step(device: torch.device) -> str:
    """A ViT-T of two blocks and 16 heads learn from two views; forward and backward."""
    n, views = 8, 2
    encoder = ViT("T", 16, 96, depth=2).to(device)
    heads = EnsembleHeads(encoder.dim, 16, hidden_dim=256, num_codes=256).to(device)
    images = torch.randn(views * n, 3, 96, 96, device=device)

    def by_view(x: Tensor) -> Tensor:
        return x.unflatten(1, (views, n)).transpose(0, 1)

    def work() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            cosines = heads(encoder.cls(images))
            targets = sinkhorn(cosines.detach(), 0.05)
            multiview_loss(by_view(cosines) / 0.1, by_view(targets)).backward()

    seconds = rounds(work, device)
    return f"{1000 * seconds:.0f} ms for {n} pictures (small ViT, 16 heads, {device})"


def product(device: torch.device) -> str:
    side = 1024 if device.type == "cpu" else 8192
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    a, b = torch.randn(2, side, side, device=device, dtype=dtype)
    rate = 2 * side**3 / rounds(lambda: matmul(a, b), device)
    return f"{rate / 1e9:,.0f} GFLOP/s ({side} x {side}, {str(dtype).removeprefix('torch.')})"


def decoding() -> str:
    """One process; training uses one a core."""
    row = np.linspace(0, 255, 500, dtype=np.float32)
    waves = 127 + 100 * np.sin(row / 9)[None, :, None] * np.cos(row[:375] / 7)[:, None, None]
    noise = np.random.default_rng(0).normal(0, 12, (375, 500, 3))
    data = io.BytesIO()
    Image.fromarray((waves + noise).clip(0, 255).astype(np.uint8)).save(data, "jpeg", quality=90)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "photo.jpg"
        path.write_bytes(data.getvalue())
        seconds = rounds(lambda: [decode(str(path), PixelFormat(3), 256) for _ in range(20)])
    return f"{20 / seconds:.0f} JPEGs of 500 x 375 a second in one process"


def writing() -> str:
    """Where decoded pictures go, down to the disk."""
    cache = cache_directory()
    there = next(place for place in (cache, *cache.absolute().parents) if place.exists())
    block = os.urandom(32 << 20)

    def work() -> None:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(block)
            file.flush()
            os.fsync(file.fileno())

    return f"{len(block) / 1e6 / rounds(work):,.0f} MB/s written to {there}"
