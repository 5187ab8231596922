"""All-reduce between two processes on this CPU (gloo), against latency + bytes / bandwidth.

    python benchmarks/collectives.py [--rounds 9]

A check of the form that scale_model.py gives a collective, with the message sizes of training;
its constants say nothing of NVLink, InfiniBand or NCCL.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

Taken = dict[int, list[float]]

SIZES = {
    "a count": 4,
    "mean of the losses": 12,
    "4 KiB": 2**12,
    "Sinkhorn, m = 4": 2**14,
    "Sinkhorn, m = 16": 2**16,
    "Sinkhorn, m = 64": 2**18,
    "1 MiB": 2**20,
    "4 MiB": 2**22,
    "a bucket of DDP": 25 * 2**20,
    "gradients of S/16": 4 * 53_159_808,
}


def work(rank: int, meet: str, rounds: int, found: "mp.SimpleQueue[Taken]") -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", f"file://{meet}", timedelta(seconds=120), world_size=2, rank=rank
    )
    taken: Taken = {size: [] for size in SIZES.values()}
    for turn in range(rounds + 1):
        for size, times in taken.items():
            repeats = max(1, min(200, 2**22 // size))
            x = torch.ones(size // 4)
            dist.barrier()
            began = time.perf_counter()
            for _ in range(repeats):
                dist.all_reduce(x)
            if turn:  # the first round opens connections
                times.append((time.perf_counter() - began) / repeats)
    if rank == 0:
        found.put(taken)
    dist.barrier()
    dist.destroy_process_group()


def measure(rounds: int) -> Taken:
    found = mp.get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(work, (f"{folder}/meet", rounds, found), nprocs=2)
    return found.get()


def fit(sizes: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    """Latency and bytes a second with the least squared *relative* error: sizes span 10^8."""
    matrix = np.stack([np.ones(len(sizes)), sizes], 1) / seconds[:, None]
    (latency, slope), *_ = np.linalg.lstsq(matrix, np.ones(len(sizes)), rcond=None)
    return float(latency), 1 / float(slope)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    taken = measure(parser.parse_args().rounds)
    print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} at the end\n")
    # On a machine with other work the fastest round is the one least disturbed; both are shown.
    report("median", taken, statistics.median)
    report("fastest", taken, min)


def report(which: str, taken: Taken, choose: Callable[[list[float]], float]) -> None:
    sizes = np.array(list(taken), dtype=float)
    seconds = np.array([choose(times) for times in taken.values()])
    latency, rate = fit(sizes, seconds)
    print(f"{which}: {1e6 * latency:.0f} us + bytes / {rate / 1e9:.2f} GB/s\n")
    print(f"| all-reduce | bytes | {which}, ms | model, ms | off by |")
    print("|---|---|---|---|---|")
    for (name, size), measured in zip(SIZES.items(), seconds, strict=True):
        model = latency + size / rate
        off = f"{100 * (model / measured - 1):+.0f} %"
        print(f"| {name} | {size:,} | {1e3 * measured:.3f} | {1e3 * model:.3f} | {off} |")
    print()


if __name__ == "__main__":
    main()
