"""Time and memory of a short training, in a process of its own."""

import resource
import shutil
import statistics
from pathlib import Path
from typing import Any

import torch

from wessl import plan
from wessl.run import Run
from wessl.study.training import train

State = dict[str, Any]
ROWS = 8
"""Lines of metrics in the run, of which the first quarter does not count."""


def time_and_memory(run: Run, job: State) -> State:
    """Trains from the start, always: what is measured is the training itself."""
    shutil.rmtree(run.path, ignore_errors=True)
    device = plan.find_device(job["options"].get("device", "auto"))
    cuda, before = device.type == "cuda", resident_bytes()
    if cuda:
        torch.cuda.reset_peak_memory_stats(device)
    every = max(1, int(job["steps"]) // ROWS)
    train(run, job | dict(options=job["options"] | dict(log_every=every, probe_every=1e9)))
    peak = torch.cuda.max_memory_allocated(device) if cuda else peak_resident_bytes() - before
    rows = [row["ms"] for row in run.read_metrics() if "ms" in row]
    settled = rows[len(rows) // 4 :]  # before, steps are compiled and clocks go up
    shutil.rmtree(run.checkpoints, ignore_errors=True)
    where = torch.cuda.get_device_name(device) if cuda else "CPU"
    return {
        "time": dict(value=statistics.median(settled), device=where),
        "memory": dict(value=peak / 1e9, device=where),
    }


def resident_bytes() -> int:
    """Of this process now; 0 where the system does not tell."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def peak_resident_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
