"""A model of one training step on many GPUs, for scale.py; nothing is measured here.

What was measured, on one GPU and one CPU core, are the numbers in capitals; what is assumed of
machines stands in ``Cluster``. Messages and bytes are counted from the code and the networks.
"""

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch

from wessl.config import Config
from wessl.pretrain import cost
from wessl.pretrain.model import Model, build_model
from wessl.recipes import recipe
from wessl.settings import override

MEASURED = {"S": (256, 2648.0), "B": (128, 950.0)}
"""Pictures in a batch and pictures a second of one H200, compiled, bf16."""
SMALL_BATCH = (64, 28.8e-3, 44.5e-3)
"""S/16: pictures, seconds as a CUDA graph, seconds without, when the host launches too slowly."""
JPEG = {"500x375": (117e3, 475.0), "341x256": (55e3, 1570.0)}
"""Bytes of a test picture; how many a core decodes in a second, to a short side of 256."""


@dataclass(frozen=True)
class Cluster:
    """Assumptions, none measured by us."""

    node: int = 8
    """GPUs in a node."""
    inside: float = 450e9
    """Bytes a second and GPU in one direction over NVLink: 900 GB/s nominal in both."""
    outside: float = 50e9
    """Bytes a second and GPU between nodes: one 400 Gb/s InfiniBand port each."""
    efficiency: float = 0.8
    """Share of those rates that large messages reach."""
    start: float = 15e-6
    """Seconds to launch any collective."""
    hop_inside: float = 1.5e-6
    hop_outside: float = 4e-6
    """Seconds a hop; a tree goes up and down."""
    bucket: float = 25 * 2**20
    """Bytes DDP sends at once; the last of them waits for the end of backward."""
    disk: float = 1e9
    """Bytes a second a checkpoint is written, and then read for its checksum."""

    def all_reduce(self, size: float, gpus: int) -> float:
        """Seconds: rings inside nodes, then between GPUs of the same place in each."""
        inside = min(gpus, self.node)
        nodes = gpus // inside
        moved = 2 * (inside - 1) / inside * size / self.inside
        moved += 2 * (nodes - 1) / nodes * size / inside / self.outside
        return self.latency(gpus) + moved / self.efficiency

    def latency(self, gpus: int) -> float:
        inside = min(gpus, self.node)
        up = math.log2(inside) * self.hop_inside + math.log2(gpus / inside) * self.hop_outside
        return self.start + 2 * up


@dataclass(frozen=True)
class Network:
    """One encoder with 16 heads of 1,024 codes and the paper's views."""

    size: str
    cluster: Cluster = field(default_factory=Cluster)

    @cached_property
    def config(self) -> Config:
        base = recipe("dino-star-ent/vits16" if self.size == "S" else "dino-star-ent/vitb16")
        return override(base, {"encoder.size": self.size, "precision": "bf16"})

    @cached_property
    def model(self) -> Model:
        with torch.device("meta"):
            return build_model(self.config)

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.model.parameters())

    @property
    def blocks(self) -> list[int]:
        """Parameters of each."""
        return [sum(p.numel() for p in b.parameters()) for b in self.model.encoder.blocks]

    @property
    def flops(self) -> float:
        return cost.flops_per_image(self.config)

    @property
    def fixed(self) -> float:
        """Seconds of a step whatever its batch: S/16's two batches on one line."""
        batch, rate = MEASURED["S"]
        few, seconds, _ = SMALL_BATCH
        return seconds - few * (batch / rate - seconds) / (batch - few)

    @property
    def each(self) -> float:
        """Seconds a picture adds; L/16 at B/16's rate of operations."""
        known = self.size if self.size in MEASURED else "B"
        batch, rate = MEASURED[known]
        return (batch / rate - self.fixed) / batch * self.flops / Network(known).flops

    @property
    def launches(self) -> float:
        """Seconds the host needs to launch a step, by its blocks; a team has no CUDA graphs."""
        return SMALL_BATCH[2] * len(self.blocks) / 12

    @property
    def too_small(self) -> int:
        """Pictures a GPU below which it waits for the host."""
        return math.ceil((self.launches - self.fixed) / self.each)

    def compute(self, batch: float) -> float:
        return max(self.launches, self.fixed + batch * self.each)

    @property
    def backward(self) -> float:
        """Its share of a step's operations: two of four passes of a global view, of three else."""
        tokens = [(c.count * c.size**2, c.role == "global") for c in self.config.views.crops]
        return sum(2 * n for n, _ in tokens) / sum((4 if both else 3) * n for n, both in tokens)

    @property
    def gradients(self) -> float:
        return 4.0 * self.parameters

    @property
    def sharded(self) -> tuple[int, float]:
        """FSDP: how many gathers and scatters, and their bytes.

        The student is gathered, its blocks again in backward, its gradients scattered; the teacher
        is gathered. All in fp32, each block on its own and the rest together.
        """
        groups = len(self.blocks) + 1
        return 3 * groups + len(self.blocks), 4.0 * (3 * self.parameters + sum(self.blocks))

    @property
    def checkpoint(self) -> float:
        """Student, teacher and AdamW's two moments."""
        return 16.0 * self.parameters

    @property
    def codes(self) -> float:
        """Bytes of one number a head and code."""
        return 4.0 * self.config.heads.count * self.config.heads.codes

    def small(self, gpus: int) -> float:
        """Sinkhorn's two reductions in each of three iterations, and the mean of the losses."""
        reduce = self.cluster.all_reduce
        return 6 * reduce(self.codes, gpus) + reduce(12, gpus)

    def exposed(self, batch: float, gpus: int) -> float:
        """What of the gradients' way is not hidden behind backward: at least the last bucket."""
        reduce = self.cluster.all_reduce
        hidden = self.backward * self.compute(batch)
        last = reduce(min(self.cluster.bucket, self.gradients), gpus)
        return max(reduce(self.gradients, gpus) - hidden, last)

    def step(self, batch: float, gpus: int) -> float:
        return self.compute(batch) + self.exposed(batch, gpus) + self.small(gpus)

    def memory(self, batch: int, shards: int = 1) -> float:
        """Bytes a GPU; ``shards`` hold a part each, but two blocks and the rest are whole."""
        each = cost.bytes_per_image(self.config) + cost.batch_bytes(self.config)
        rest = self.parameters - sum(self.blocks)
        whole = 0 if shards == 1 else 4 * (rest + 2 * max(self.blocks))
        fixed = cost.BYTES_PER_PARAMETER * self.parameters / shards + whole
        return fixed + batch * each + cost.logits_bytes(self.config, batch)
