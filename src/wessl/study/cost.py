"""What a study will take, said before it starts."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from wessl.auto import START_SECONDS, DataFacts, flops_per_second, seconds_per_image
from wessl.config import Config
from wessl.data.views.config import Crop, Views
from wessl.encoder.sizes import SIZES
from wessl.evaluate.spelling import parse_shots
from wessl.pretrain.cost import flops_per_image
from wessl.verbs.pretraining.disk import checkpoint_bytes, encoder_bytes

MEASURE_SECONDS = {"cuda": 5.0, "cpu": 0.4}
"""Of a run's measuring and its page however small it is; measured on the CPU, supposed else."""
PROTOCOL_SECONDS = 0.1
WORKER_SECONDS = {"cuda": 12.0, "cpu": 4.7}
"""Of a worker process besides its runs, mostly PyTorch's import; measured, with its end and what a
first run does once on the CPU, until a first step that is not compiled on the GPU."""
PASSES = 25
"""Over its labels, that a logistic regression takes; measured with 10 to 100 classes."""
STRENGTHS, FOLDS, RATES = 11, 5, 6
COMPARED = 51_200


@dataclass(frozen=True)
class Measuring:
    """What is measured of every run, and on how many pictures."""

    protocols: tuple[str, ...] = ()
    tested: int = 0
    classes: int = 1
    draws: int = 30
    linear_epochs: int = 100
    elsewhere: int = 0
    """Pictures of other datasets, whose classifiers are not counted."""
    diversity: bool = False

    def seconds(self, config: Config, facts: DataFacts) -> float:
        n, once = facts.pictures, _one_look(config)
        looks = (n + self.tested if self.protocols else 0) + self.elsewhere
        looks += min(n, COMPARED) if self.diversity else 0
        looks += n * self.linear_epochs * ("linear" in self.protocols)
        flops = looks * once + sum(self._flops(name, config, n) for name in self.protocols)
        if self.diversity:
            pairs = math.comb(config.heads.count, 2)
            flops += 2.0 * pairs * min(n, COMPARED) * config.heads.codes**2
        idle = MEASURE_SECONDS[facts.device] + PROTOCOL_SECONDS * len(self.protocols)
        return idle + flops / flops_per_second(facts)

    def _flops(self, name: str, config: Config, n: int) -> float:
        """Of a protocol on features."""
        dim = _width(config)
        if name == "k-NN":
            return 2.0 * n * (self.tested + min(n, 10_000)) * dim
        if name.startswith("linear"):
            return 6.0 * self.linear_epochs * n * RATES * dim * self.classes
        shots = parse_shots(name)
        labels = shots * self.classes if isinstance(shots, int) else shots * n
        fits = 1 if shots == 1 else 1 + FOLDS
        return 2.0 * PASSES * self.draws * STRENGTHS * fits * labels * dim * self.classes


def _one_look(config: Config) -> float:
    """Of one picture, seen once without learning."""
    view = Views((Crop(config.encoder.image_size, 1, (1.0, 1.0), role="target"),))
    return flops_per_image(replace(config, views=view, heads=replace(config.heads, count=0)))


def _width(config: Config) -> int:
    if config.encoder.kind == "conv":
        return config.encoder.widths[-1]
    return config.encoder.dim or SIZES[config.encoder.size][0]


def seconds(config: Config, facts: DataFacts, compiled: bool = True) -> float:
    """Of one training alone on its device, or on one core."""
    images = config.optim.epochs * facts.pictures
    start = START_SECONDS[facts.device] if compiled else 0.0
    return start + images * seconds_per_image(config, facts)


def busy_seconds(config: Config, facts: DataFacts) -> float:
    """Of one training, what the device computes: all that cannot be done side by side."""
    images = config.optim.epochs * facts.pictures
    return images * flops_per_image(config) / flops_per_second(facts)


def total(
    configs: Iterable[Config],
    facts: DataFacts,
    slots: int,
    measuring: Measuring | None,
    devices: int | None = None,
    compiled: bool = True,
    fresh: bool = False,
    slim: bool = False,
) -> tuple[float, float]:
    """Seconds with so many runs at a time on idle devices (a core each, unless said), and bytes.

    Without ``measuring``, of training alone; ``fresh`` where every run has a process of its own.
    Where other programs share the cores it takes as much longer as they take of them. ``slim``
    where no checkpoint stays.
    """
    known, start = list(configs), WORKER_SECONDS[facts.device]
    work = sum(seconds(config, facts, compiled) for config in known)
    if measuring is not None:
        work += sum(measuring.seconds(config, facts) for config in known)
    rounds = math.ceil(len(known) / slots)
    side_by_side = rounds * (work / max(1, len(known)) + start * fresh)
    busy = sum(busy_seconds(config, facts) for config in known)
    size = sum(encoder_bytes(config) for config in known)
    size += 0 if slim else sum(checkpoint_bytes(config) for config in known)
    return start * (not fresh) + max(side_by_side, busy / (devices or slots)), size
