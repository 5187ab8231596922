"""Pictures through an encoder as they are decoded, none of them kept."""

from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from wessl.data.batch import Batch
from wessl.data.decoding.bad_pictures import BadPicture
from wessl.data.decoding.decode import Pixels
from wessl.data.sources.open import Source
from wessl.data.workers.many import decode_many
from wessl.errors import Failure, UserError
from wessl.evaluate.features.passes import settle_precision
from wessl.evaluate.features.trained_encoder import TrainedEncoder
from wessl.export.choices import Read

Number = Literal["float32", "float16"]


class Part(NamedTuple):
    """Features `(n, width)` of some pictures, their numbers in the source, and who is missing."""

    numbers: NDArray[np.int64]
    features: NDArray[Any]
    bad: NDArray[np.int64]
    reasons: NDArray[np.str_]


@dataclass(frozen=True)
class Look:
    """What is read from a picture, by which encoder; the same look gives the same features."""

    encoder: TrainedEncoder
    reading: Read = "cls"
    number: Number = "float32"
    batch_size: int = 256

    def check(self) -> None:
        if self.reading not in get_args(Read):
            known = ", ".join(get_args(Read))
            raise UserError(f"--reading must be one of {known}, not {self.reading!r}")
        if self.reading != "cls" and not self.encoder.patch_tokens:
            raise UserError(
                f"--reading {self.reading}: this encoder has no patch tokens; use --reading cls"
            )

    @property
    def width(self) -> int:
        return self.encoder.dim * (2 if self.reading == "cls+mean" else 1)

    @property
    def precision(self) -> Literal["bf16", "fp32"]:
        return settle_precision("auto", [self.encoder.device])

    @property
    def side(self) -> int:
        """The short side pictures are decoded at, as for an evaluation."""
        return max(256, self.encoder.description["resize"])

    @torch.no_grad()
    def at(self, pictures: list[Pixels]) -> Tensor:
        """`(n, width)`, still on the encoder's device."""
        place = self.encoder.device
        prepared = self.encoder.prepare(Batch.collate(pictures).map(lambda x: x.to(place)))
        wanted: Literal["cls", "cls+mean"] = "cls" if self.reading == "cls" else "cls+mean"
        with torch.autocast(place.type, torch.bfloat16, enabled=self.precision == "bf16"):
            found = self.encoder.read(prepared, [wanted])[wanted].float()
        return found[:, self.encoder.dim :] if self.reading == "mean" else found


def encode(
    look: Look, source: Source, blocks: Sequence[range], workers: int | None = None
) -> Generator[Part, None, None]:
    """The pictures of each block of numbers, decoded ahead by other processes."""
    every = chain.from_iterable(blocks)
    with closing(decode_many(source, every, look.side, workers)) as decoded:
        for block in blocks:
            yield _part(look, source, islice(decoded, len(block)))


def _part(look: Look, source: Source, decoded: Iterable[tuple[int, Pixels | BadPicture]]) -> Part:
    numbers, bad, reasons = [], [], []
    waiting: list[Pixels] = []
    found: list[Tensor] = [torch.empty(0, look.width, device=look.encoder.device)]
    for number, picture in decoded:
        if isinstance(picture, BadPicture):
            bad.append(number)
            reasons.append(str(picture))
            continue
        numbers.append(number)
        waiting.append(picture)
        if len(waiting) == look.batch_size:
            found.append(look.at(waiting))
            waiting = []
    if waiting:
        found.append(look.at(waiting))
    # Only here does anything wait for the device.
    with np.errstate(over="ignore"):  # named below
        features = torch.cat(found).cpu().numpy().astype(look.number)
    _check(features, [source.name(number) for number in numbers], look.number)
    whole = (np.array(some, np.int64) for some in (numbers, bad))
    return Part(next(whole), features, next(whole), np.array(reasons, np.str_))


def _check(features: NDArray[Any], names: list[str], number: Number) -> None:
    wrong = np.flatnonzero(~np.isfinite(features).all(1))
    if len(wrong):
        some = ", ".join(names[i] for i in wrong[:5])
        half = "; float16 ends at 65504: try without --half" if number == "float16" else ""
        raise Failure(
            f"the encoder gives NaN or infinite features for {len(wrong)} of {len(names)} "
            f"pictures: {some}{', ...' * (len(wrong) > 5)}{half}"
        )
