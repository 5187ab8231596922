"""Views of a batch, from uint8 pictures on the device: the kernels beside the plain code.

    python benchmarks/views.py [--batch 256] [--height 256] [--width 341] [--device cuda]

2x224 + 10x96 with all of DINO's photometric changes. Prints both times, their ratio, what they cost
the host, peak memory, and how far the two results lie apart. Without CUDA: the plain code alone.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from wessl.bench.memory import peak_bytes
from wessl.bench.pictures import pictures
from wessl.bench.views import STD, plain_views_of, uses_kernels, views_of
from wessl.data.views.config import dino_views
from wessl.pretrain.loop import wait_for


def times(call: Callable[[], object], device: torch.device, rounds: int) -> tuple[float, float]:
    """Milliseconds of one call, and of the host alone: medians."""
    call()
    all_ms, host_ms = [], []
    for _ in range(rounds):
        wait_for(device)
        start = time.perf_counter()
        call()
        host_ms.append((time.perf_counter() - start) * 1e3)
        wait_for(device)
        all_ms.append((time.perf_counter() - start) * 1e3)
    return statistics.median(all_ms), statistics.median(host_ms)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--height", type=int, default=256)
    parser.add_argument("--width", type=int, default=341)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    device = torch.device(args.device)
    batch = pictures(args.batch, args.height, args.width, 3, device)
    views = dino_views()
    ways: dict[str, Callable[[], list[Tensor]]] = {"plain": lambda: plain_views_of(batch, views)}
    if uses_kernels(batch, views):
        ways["kernels"] = lambda: views_of(batch, views)
    results, found = {}, {}
    for name, make in ways.items():
        results[name] = make()
        memory = peak_bytes(make, device) / 2**30
        found[name] = times(make, device, args.rounds)
        total, host = found[name]
        print(f"{name:8} {total:9.2f} ms  {args.batch / total * 1e3:9.0f} img/s  "
              f"host {host:8.2f} ms  {memory:5.2f} GiB")  # fmt: skip
    if "kernels" in found:
        differences = torch.cat(
            [(a - b).abs().flatten() * STD for a, b in zip(*results.values(), strict=True)]
        )
        print(f"ratio    {found['plain'][0] / found['kernels'][0]:9.1f}")
        print(
            f"apart    {differences.max():.1e} at most, {differences.mean():.1e} on average, of 1"
        )


if __name__ == "__main__":
    main()
