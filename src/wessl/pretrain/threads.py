"""How many threads a step on a CPU wants."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from wessl.config import Config
from wessl.devices import usable_cores
from wessl.pretrain.cost import flops_per_image

SMALL_STEP = 10e9
"""Operations up to which half-precision convolutions are as fast on one thread as on two: 38 ms for
the demo's 4e9 either way, and 38 instead of 144 where something else keeps one of two cores busy.
34e9 take 290 ms on one thread and 216 on two."""
FEW_CORES = 4
"""More might win: nobody has tried."""


@contextmanager
def suitable_threads(config: Config, device: torch.device, processes: int = 1) -> Iterator[None]:
    """One where a second wins nothing, else torch's own number."""
    before = torch.get_num_threads()
    if wants_one_thread(config, device, processes):
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def wants_one_thread(config: Config, device: torch.device, processes: int = 1) -> bool:
    """Whether a small step is better off so; a user's or launcher's own number stands."""
    halves = device.type == "cpu" and config.precision == "bf16" and config.encoder.kind == "conv"
    if not halves or "OMP_NUM_THREADS" in os.environ or usable_cores() > FEW_CORES:
        return False
    together = config.optim.batch_size / config.optim.accumulate / processes
    return flops_per_image(config) * together <= SMALL_STEP
