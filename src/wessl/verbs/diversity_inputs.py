"""What an analysis of the heads works on: the teacher of a run, and a sample of pictures."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from wessl.config import Config
from wessl.data.cache.build import build_cache, find_cache
from wessl.data.cache.cache import PictureCache
from wessl.data.cache.writer import Progress
from wessl.data.pictures import Pictures
from wessl.data.sources.source import Source, Subset
from wessl.errors import UserError
from wessl.evaluate.features.trained_encoder import TrainedEncoder
from wessl.evaluate.gallery import thumbnail
from wessl.pretrain.console import Console
from wessl.pretrain.model import Model, build_model
from wessl.run import Run
from wessl.verbs.pretraining.header import describe_data

SEED = 0
GROUP = 4
"""Batches of the encoder that are assigned to codes at once: large products are quicker."""


def load_teacher(
    run: Run, config: Config, device: torch.device, console: Console
) -> tuple[Model, int]:
    """The newest teacher with its heads, which only a checkpoint holds."""
    state = run.load_checkpoint(say=console.say)
    if state is None:
        raise UserError(
            f"{run.path} has no whole checkpoint, and the heads are kept nowhere else; "
            "run `wessl pretrain` on it, or give a run that still has its checkpoints/"
        )
    teacher = build_model(config)
    teacher.load_state_dict(state["teacher"])
    return teacher.to(device).eval().requires_grad_(False), state["step"]


@dataclass(frozen=True)
class Sample:
    """Readable pictures, by their numbers in the source and their rows in a cache."""

    source: Source
    cache: PictureCache
    numbers: Tensor
    rows: Tensor

    @property
    def whole(self) -> bool:
        """Whether the cache is of all pictures."""
        return self.cache.source_index.numel() + len(self.cache.skipped) == len(self.source)

    def __len__(self) -> int:
        return len(self.rows)

    def describe(self, short_side: int | None) -> dict[str, Any]:
        said = describe_data(Pictures(self.source, short_side, self.cache if self.whole else None))
        some = {} if self.whole else dict(decode="the sample alone")
        return said | some | dict(sampled=len(self), seed=SEED)

    def gallery(self, result: dict[str, Any]) -> dict[str, dict[str, str]]:
        """Every picture the result lists: its name, and itself in small."""
        lists = [result["disagreed"], *(head["sure"] for head in result["per_head"])]
        wanted = {entry["index"] for entries in lists for entry in entries}
        at = dict(zip(self.numbers.tolist(), self.rows.tolist(), strict=True))
        return {
            str(i): dict(
                name=self.cache.names[at[i]], thumbnail=thumbnail(self.cache.picture(at[i]))
            )
            for i in sorted(wanted)
        }


def open_sample(
    source: Source,
    most: int,
    short_side: int | None,
    directory: str | None,
    progress: Progress | None = None,
) -> Sample:
    """Drawn before anything is decoded; where all are decoded already, from those."""
    numbers = draw(len(source), most)
    cache = find_cache(source, short_side, directory)
    if cache is None and len(numbers) < len(source):
        some = build_cache(
            Subset(source, numbers.numpy()), short_side, directory, progress=progress
        )
        return Sample(source, some, numbers[some.source_index.long()], torch.arange(len(some)))
    cache = cache or build_cache(source, short_side, directory, progress=progress)
    rows = cache.rows(numbers)
    readable = cache.source_index[rows] == numbers
    return Sample(source, cache, numbers[readable], rows[readable])


def draw(count: int, most: int) -> Tensor:
    """A random choice, the same each time, in the order in which the pictures lie."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(SEED))
    return order[:most].sort().values


@torch.no_grad()
def assignments(
    teacher: Model,
    look: TrainedEncoder,
    cache: PictureCache,
    rows: Tensor,
    temperature: float,
    batch_size: int,
) -> Iterator[Tensor]:
    """Probabilities ``(m, n, c)``: the encoder on small batches, the heads on a few together."""
    device = next(teacher.parameters()).device
    for group in rows.split(GROUP * batch_size) if len(rows) else ():
        parts = [cache.batch(part).map(lambda x: x.to(device)) for part in group.split(batch_size)]
        representations = torch.cat([look.cls(look.prepare(part)) for part in parts])
        yield (teacher.heads(representations) / temperature).softmax(-1)
