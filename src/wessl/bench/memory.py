"""What a piece of work needs beside what lay there before it, in bytes of tensors."""

import itertools
import os
from collections.abc import Iterable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from wessl.bench.turns import Work


def peak_bytes(work: Work, device: torch.device) -> int:
    """The highest sum of tensors that ``work`` had allocated at a time."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it would print two lines a recording
    # A process's resident size would count what the C library keeps of earlier work; this counts
    # every block as PyTorch's allocator hands it out and takes it back.
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        work()
    events: Iterable[Any] = recorded.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    return max(itertools.accumulate((size for _, size in changes), initial=0))
