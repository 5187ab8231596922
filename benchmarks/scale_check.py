"""The form of scale_model.py held against the one team that could be timed: two processes on a CPU.

    python benchmarks/scale_check.py

The constants are those of that machine: a step of one process and of two by processes.py, an
all-reduce by collectives.py. What is checked is the sum of compute, gradients and small messages.
"""

from dataclasses import dataclass
from functools import cached_property

from processes import CONFIG
from scale_model import Cluster, Network
from wessl.config import Config

ALONE, TOGETHER = 1.435, 0.800
"""Seconds of a step of 48 pictures: one process with one thread, two with one thread each."""
LATENCY, RATE = 529e-6, 1.39e9
"""Seconds, and bytes a second, of gloo's all-reduces between those two: the fit of the medians."""


@dataclass(frozen=True)
class Gloo(Cluster):
    def all_reduce(self, size: float, gpus: int) -> float:
        return LATENCY + size / RATE


@dataclass(frozen=True)
class OnTwoCores(Network):
    """The network of processes.py; each process has half of the pictures, and half of the work."""

    @cached_property
    def config(self) -> Config:
        return CONFIG

    def compute(self, batch: float) -> float:
        return ALONE * batch / CONFIG.optim.batch_size


def rows() -> list[tuple[str, float]]:
    """What the model adds up, in seconds; its sum and the measured step last."""
    network, each = OnTwoCores("T", Gloo()), CONFIG.optim.batch_size / 2
    heads = CONFIG.heads
    return [
        (f"compute: half of {1e3 * ALONE:,.0f}", network.compute(each)),
        (f"gradients, {network.gradients:,.0f} bytes, not hidden", network.exposed(each, 2)),
        (
            f"Sinkhorn, 6 times {network.codes:,.0f} bytes ({heads.count} heads of {heads.codes} "
            "codes), and the losses",
            network.small(2),
        ),
        ("step, model", network.step(each, 2)),
        ("step, measured", TOGETHER),
    ]


def check() -> str:
    lines = ["| two processes, 24 pictures each | ms |", "| --- | --- |"]
    lines += [f"| {what} | {1e3 * seconds:,.1f} |" for what, seconds in rows()]
    return "\n".join(lines)


if __name__ == "__main__":
    print(check())
