"""What comparing all pairs of heads costs, from assignments alone: no encoder is run.

Heads group the pictures by hidden classes of their own and are unsure by as much as trained ones
are, so that alignment has something to find.

    python benchmarks/diversity.py [--heads 16] [--codes 1024] [--pictures 51200] [--device cuda]

Prints the seconds of each part and the peak memory: on a CPU that of the process above what it had
before, on a GPU what was allocated there.
"""

import argparse
import resource
import time
from collections.abc import Iterator

import torch
from torch import Tensor

from wessl.analyse.assignments import Assignments
from wessl.analyse.measure import summarise


def batches(m: int, c: int, n: int, device: torch.device, size: int = 1024) -> Iterator[Tensor]:
    """Probabilities ``(m, size, c)``: each head's own clusters, half of them known to all."""
    generator = torch.Generator(device).manual_seed(0)
    codes_mk = torch.stack(
        [torch.randperm(c, generator=generator, device=device) for _ in range(m)]
    )
    for start in range(0, n, size):
        count = min(size, n - start)
        shared = torch.randint(c, (count,), generator=generator, device=device)
        own = torch.randint(c, (m, count), generator=generator, device=device)
        cluster_mn = torch.where(shared % 2 == 0, shared.expand(m, -1), own)
        logits = torch.randn(m, count, c, generator=generator, device=device)
        logits.scatter_add_(
            2, codes_mk.gather(1, cluster_mn)[..., None], torch.full_like(logits[..., :1], 8.0)
        )
        yield logits.softmax(-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--heads", type=int, default=16)
    parser.add_argument("--codes", type=int, default=1024)
    parser.add_argument("--pictures", type=int, default=51_200)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    asked = parser.parse_args()
    device = torch.device(asked.device)
    before = peak(device)
    given = Assignments(asked.heads, asked.codes, device)
    making = adding = 0.0
    began = now(device)
    for batch_mnc in batches(asked.heads, asked.codes, asked.pictures, device):
        made = now(device)
        given.add(batch_mnc)
        adding += now(device) - made
        making += made - began
        began = now(device)
    found = summarise(given)
    comparing = now(device) - began
    pairs = len(found.alignments)
    where = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else (f"CPU, {torch.get_num_threads()} threads")
    )
    print(f"{asked.heads} heads of {asked.codes} codes, {asked.pictures} pictures; {where}")
    print(f"making the assignments  {making:7.1f} s (not part of it)")
    print(f"summing inner products  {adding:7.1f} s")
    print(f"aligning {pairs} pairs, mutual information  {comparing:7.1f} s")
    print(f"together                {adding + comparing:7.1f} s, "
          f"peak memory {(peak(device) - before) / 1e9:.2f} GB")  # fmt: skip
    print(f"diversity {found.score:.3f}, before alignment {found.score_before:.3f}")


def now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def peak(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main()
