"""What a device can do."""

import contextlib
import os
import platform
import time
from collections.abc import MutableMapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


SHORT_WAIT = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}
"""Some ten microseconds, as the pauses between a small step's operations. Threads that do not spin
are woken after each: views take up to twice as long, a small network's step 1.4 times. Those that
spin for longer take the core from whoever else runs there, and a transformer's step then takes 1.6
times as long (``benchmarks/threads.py``)."""


NO_MEMORY = (
    "can't allocate memory",  # torch, of a CPU
    "CUDA driver error: out of memory",  # Triton, where a kernel is loaded
    "STATUS_ALLOC_FAILED",  # cuBLAS and cuDNN
)
"""How others than torch's allocator of a GPU say that there was too little."""

NUMBERS = {"family": "cpu family", "model": "model"}
"""What Linux calls a CPU's."""


def wait_briefly(environment: MutableMapping[str, str]) -> None:
    """How long torch's threads spin while they wait for each other, unless the user has set it.

    For the environment that torch is imported in.
    """
    if not SHORT_WAIT.keys() & environment.keys():
        environment.update(SHORT_WAIT)


def usable_cores() -> int:
    """Those this process may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):  # on Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class OtherPrograms:
    """How many of our cores they use, from one look to the next; 0 where nobody tells."""

    def __init__(self) -> None:
        self._last = self._look()

    def busy_cores(self) -> float:
        before, self._last = self._last, self._look()
        seconds, worked, own = (b - a for a, b in zip(before, self._last, strict=True))
        return max(0.0, worked - own) / seconds if seconds > 0 else 0.0

    @staticmethod
    def _look() -> tuple[float, float, float]:
        """The clock, what the cores have worked, and what of it was us and what we started."""
        try:
            return time.perf_counter(), _worked(), sum(os.times()[:4])
        except (AttributeError, OSError, ValueError, IndexError):  # not Linux
            return time.perf_counter(), 0.0, 0.0


def busy_cores(seconds: float = 0.5) -> float:
    """How many of our cores other programs use, while this one waits."""
    others = OtherPrograms()
    time.sleep(seconds)
    return others.busy_cores()


def _worked() -> float:
    """Seconds that the cores we may use have worked: neither idle nor waiting for a disk."""
    ours, total = {f"cpu{core}" for core in os.sched_getaffinity(0)}, 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *ticks = line.split()
        if name in ours:
            times = [int(tick) for tick in ticks[:8]]
            total += sum(times) - times[3] - times[4]
    return total / os.sysconf("SC_CLK_TCK")


def cpu_facts() -> dict[str, str]:
    """What Linux tells of its first CPU; elsewhere nothing."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
        pairs = (line.partition(":") for line in lines)
        return {name.strip(): value.strip() for name, _, value in pairs}
    return {}


def cpu_name() -> str:
    """With family and model, where Linux tells: a virtual machine may call all CPUs the same."""
    facts = cpu_facts()
    name = facts.get("model name") or platform.processor() or platform.machine()
    numbers = [f"{short} {facts[long]}" for short, long in NUMBERS.items() if long in facts]
    return f"{name} ({', '.join(numbers)})" if numbers else name


def amd_family() -> int:
    """25 is Zen 3 and 4, 26 Zen 5; 0 where it is nobody knows whose, or not AMD's."""
    facts = cpu_facts()
    return int(facts.get("cpu family", 0)) if facts.get("vendor_id") == "AuthenticAMD" else 0


def make_current(device: "torch.device") -> None:
    """Triton's kernels run on the current GPU alone."""
    import torch

    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)


def has_bf16(device: "torch.device") -> bool:
    """Whether it multiplies bf16 itself: what a CPU only imitates is slower than fp32."""
    import torch  # here, so that `wessl doctor` counts cores where torch is broken

    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    tests = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(bool(getattr(torch.cpu, test, bool)()) for test in tests)


def is_out_of_memory(error: Exception) -> bool:
    """Of a GPU or a CPU, whoever says it."""
    import torch

    told = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    return told or any(words in str(error) for words in NO_MEMORY)
