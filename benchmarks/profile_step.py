"""What the device does in a step of ``speed.py``, and whether the host ever waits for it.

    python benchmarks/profile_step.py [--row "ViT-S/16, batch 256, 16 heads"] [--steps 4]

By torch's profiler: milliseconds a step of each kind of kernel, their number, and the time in which
none ran; then every call in which the host waited for the device between the first step and the
last launch, of which there should be none.
"""

import argparse
import re
import sys
from collections import Counter, defaultdict
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from speed import ROWS
from wessl.pretrain.loop import wait_for

KINDS = {
    "clipping, AdamW, moving average": r"multi_tensor_apply",
    "attention": r"^(forward|backward)_kernel",
    "norms and GELU": r"^_(forward|backward)_kernel",
    "matrix products": r"gemm|nvjet|cutlass|xmma|cublas|splitK",
    "copies": r"^(Memcpy|Memset)|copy_kernel|CatArray",
    "compiled by torch": r"^triton_",
}
"""By the first name that fits; the rest are PyTorch's own small ones."""
LAUNCHES = re.compile(r"^cu(da)?(LaunchKernel|GraphLaunch)")
WAITS = re.compile(r"cuda(Stream|Device|Event)Synchronize|^cudaMemcpy$|cuStreamSynchronize")


def kind_of(kernel: str) -> str:
    return next((kind for kind, name in KINDS.items() if re.search(name, kernel)), "others")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--row", default="ViT-S/16, batch 256, 16 heads")
    parser.add_argument("--steps", type=int, default=4, help="at least 2")
    asked = parser.parse_args()
    if asked.steps < 2:
        sys.exit("--steps must be at least 2: what waits at the end of a step shows in the next")
    rows = {row.label: row for row in ROWS}
    if asked.row not in rows:
        sys.exit("\n  ".join([f"--row {asked.row!r} is unknown; speed.py has", *rows]))
    if not torch.cuda.is_available():
        sys.exit("this measures a GPU, and there is none; on a CPU see `wessl bench`")
    device = torch.device("cuda")
    step = rows[asked.row].build(device)["step"]
    for _ in range(5):
        step()
    wait_for(device)
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
        for _ in range(asked.steps):
            step()
        last = torch.cuda.Event()
        last.record()
        while not last.query():  # a wait of our own that is no call to wait
            pass
    tell(list(found.events()), asked.steps)


def tell(events: list[Any], steps: int) -> None:
    kernels = [e for e in events if e.device_type == DeviceType.CUDA]
    took: dict[str, float] = defaultdict(float)
    for kernel in kernels:
        took[kind_of(kernel.name)] += kernel.time_range.elapsed_us() / 1e3 / steps
    counts = Counter(kind_of(kernel.name) for kernel in kernels)
    first = min(kernel.time_range.start for kernel in kernels)
    whole = (max(kernel.time_range.end for kernel in kernels) - first) / 1e3 / steps
    print(f"{'':34}{'ms a step':>11}{'share':>8}{'kernels':>9}")
    for kind, time in sorted(took.items(), key=lambda item: -item[1]):
        print(f"{kind:34}{time:11.2f}{time / whole:8.1%}{counts[kind] / steps:9.0f}")
    busy = sum(took.values())
    print(f"{'none runs':34}{whole - busy:11.2f}{1 - busy / whole:8.1%}")
    print(f"{'in all, with the profiler':34}{whole:11.2f}{'':8}{len(kernels) / steps:9.0f}")
    launched = max(e.time_range.start for e in events if LAUNCHES.search(e.name))
    waits = Counter(
        e.name for e in events if WAITS.search(e.name) and e.time_range.start < launched
    )
    print(f"the host waited: {dict(waits) or 'never'}")


if __name__ == "__main__":
    main()
