"""How many threads a step on a CPU wants."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from wessl.config import Config
from wessl.pretrain.cost import flops_per_image

SMALL_STEP = 10e9
"""Operations of a step up to which half-precision convolutions are as fast on one thread as on two:
38 ms for the demo's 4e9 either way, and 38 instead of 144 where something else keeps a core busy. A
step of 34e9 takes 290 ms on one thread and 216 on two."""


@contextmanager
def suitable_threads(config: Config, device: torch.device) -> Iterator[None]:
    """One where a second would only wait for the first; torch's own number else, or the user's."""
    before = torch.get_num_threads()
    if wants_one_thread(config, device) and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def wants_one_thread(config: Config, device: torch.device) -> bool:
    halves = device.type == "cpu" and config.precision == "bf16" and config.encoder.kind == "conv"
    return halves and flops_per_image(config) * config.optim.batch_size <= SMALL_STEP
