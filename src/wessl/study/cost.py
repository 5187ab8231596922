"""What a study will take, said before it starts."""

from collections.abc import Iterable

from wessl.auto import START_SECONDS, DataFacts, seconds_per_image
from wessl.config import Config
from wessl.pretrain.cost import parameters

BYTES_PER_PARAMETER = 16
"""Of a checkpoint: student, teacher and AdamW's two moments in fp32."""


def seconds(config: Config, facts: DataFacts) -> float:
    """Of one training alone on its device, or on one core; measuring not counted."""
    images = config.optim.epochs * facts.pictures
    return START_SECONDS[facts.device] + images * seconds_per_image(config, facts.device)


def total(configs: Iterable[Config], facts: DataFacts, devices: int) -> tuple[float, float]:
    """Seconds on so many devices, and bytes on disk."""
    known = list(configs)
    work = sum(seconds(config, facts) for config in known) / max(1, min(devices, len(known)))
    return work, sum(BYTES_PER_PARAMETER * parameters(config) for config in known)
