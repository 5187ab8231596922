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
import torch.nn.functional as F
from torch import Tensor

from wessl.data import kernels
from wessl.data.cache import Batch
from wessl.data.view_config import dino_views
from wessl.data.views import make_views

STD = 0.25


def pictures(count: int, height: int, width: int, device: torch.device) -> Batch:
    """Smooth colours with noise: filters and hues have something to do."""
    random = torch.Generator(device).manual_seed(0)
    coarse = torch.rand((count, 3, height // 16, width // 16), generator=random, device=device)
    noise = torch.randn((count, 3, height, width), generator=random, device=device)
    values = F.interpolate(coarse, (height, width), mode="bilinear") + 0.1 * noise
    pixels = (values.clamp(0, 1) * 255).byte().permute(0, 2, 3, 1).contiguous()
    return Batch(pixels, *(torch.full((count,), side, device=device) for side in (height, width)))


def times(call: Callable[[], object], device: torch.device, rounds: int) -> tuple[float, float]:
    """Milliseconds of one call, and of the host alone: medians."""
    cuda = device.type == "cuda"
    call()
    all_ms, host_ms = [], []
    for _ in range(rounds):
        if cuda:
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        call()
        host_ms.append((time.perf_counter() - start) * 1e3)
        if cuda:
            torch.cuda.synchronize(device)
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
    batch = pictures(args.batch, args.height, args.width, device)
    indices, views = torch.arange(args.batch, device=device), dino_views()

    def make() -> list[Tensor]:
        return make_views(batch, indices, views, 0, 1, [0.5] * 3, [STD] * 3)

    own = kernels.usable
    results, found = {}, {}
    for name, usable in dict(plain=lambda *_: False, kernels=own).items():
        if name == "kernels" and device.type != "cuda":
            continue
        kernels.usable = usable
        results[name] = make()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
        found[name] = times(make, device, args.rounds)
        memory = (
            (torch.cuda.max_memory_allocated(device) - before) / 2**30
            if device.type == "cuda"
            else 0
        )
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
