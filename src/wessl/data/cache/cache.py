"""Pictures decoded once: one flat uint8 file, mapped into memory or held on the device.

A cache is a folder `pictures-<hash>` with `pixels.bin` (the pictures end to end), a few `.npy`
arrays and `header.json`; `cache.build` finds it or has it written.
"""

import math
from collections.abc import Iterable
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from wessl.data.batch import Batch
from wessl.data.decoding.bad_pictures import Skipped
from wessl.data.sources.names import Names


class PictureCache:
    """A complete cache, opened by `build_cache`; numbers count the pictures that could be decoded.

    >>> from tempfile import TemporaryDirectory
    >>> from wessl.data.cache.build import build_cache
    >>> from wessl.data.sources.open import open_source
    >>> with TemporaryDirectory() as folder:
    ...     cache = build_cache(open_source("builtin://digits"), directory=folder).to("cpu")
    ...     batch = cache.batch(torch.tensor([5, 2, 9]))
    ...     mean, std = cache.mean_std()
    >>> batch.pixels.shape, len(mean)
    (torch.Size([3, 8, 8, 1]), 1)
    """

    def __init__(self, home: Path, header: dict[str, Any]):
        def tensor(name: str) -> Tensor:
            return torch.from_numpy(np.load(home / f"{name}.npy"))

        self.home = home
        self.channels: int = header["channels"]
        self.classes: list[str] | None = header["classes"]
        blocks = header.get("blocks")
        self.blocks = None if blocks is None else np.array(blocks, np.int64)  # as in `Source`
        self.skipped: Skipped = [(name, reason) for name, reason in header["skipped"]]
        self.heights, self.widths = tensor("heights"), tensor("widths")
        self.source_index = tensor("source_index")
        self.labels = tensor("labels") if header["labelled"] else None
        # Copy-on-write, because torch has no read-only tensors.
        self.pixels = torch.from_numpy(np.memmap(home / "pixels.bin", np.uint8, mode="c"))
        sizes = self.heights.long() * self.widths.long() * self.channels
        self.offsets = sizes.cumsum(0) - sizes
        self._on_device = (self.offsets, self.heights, self.widths)
        same = (self.heights == self.heights[0]) & (self.widths == self.widths[0])
        self.uniform = bool(same.all())

    def __len__(self) -> int:
        return len(self.heights)

    @property
    def nbytes(self) -> int:
        return self.pixels.numel()

    @property
    def device(self) -> torch.device:
        return self.pixels.device

    @cached_property
    def names(self) -> Names:
        blob, bounds = (np.load(self.home / f"{part}.npy") for part in ("names", "name_bounds"))
        return Names(blob, bounds)

    def to(self, device: str | torch.device) -> "PictureCache":
        """The same cache with its pixels on `device`; this one stays where it is."""
        moved = copy(self)
        moved.pixels = self.pixels.to(device)
        moved._on_device = tuple(part.to(device) for part in self._on_device)  # type: ignore[assignment]
        return moved

    @property
    def source_pictures(self) -> int:
        """How many pictures the source has, readable or not."""
        return len(self) + len(self.skipped)

    def rows(self, numbers: Tensor) -> Tensor:
        """Where pictures numbered as in the source lie here.

        For one that could not be decoded the next one stands in, as in a stream.
        """
        if not self.skipped:
            return numbers
        return torch.searchsorted(self.source_index, numbers) % len(self)

    def batch(self, indices: Tensor) -> Batch:
        """Gather pictures on the cache's device; `indices` on the CPU, so that nothing waits."""
        height, width = int(self.heights[indices].max()), int(self.widths[indices].max())
        at = indices.to(self.device, non_blocking=True)
        offsets, heights, widths = (part[at] for part in self._on_device)
        if self.uniform:
            stacked = self.pixels[: len(self) * height * width * self.channels].view(len(self), -1)
            pixels = stacked.index_select(0, at).view(-1, height, width, self.channels)
        elif self.device.type == "cpu":
            # Here a copy a picture is many times faster than the gather below.
            return Batch.collate([self.picture(i).numpy() for i in indices.tolist()])
        else:
            pixels = self._padded(height, width, offsets, heights, widths)
        return Batch(pixels, heights, widths)

    def picture(self, index: int) -> Tensor:
        """One picture, `(height, width, channels)`, without a copy."""
        shape = int(self.heights[index]), int(self.widths[index]), self.channels
        start = int(self.offsets[index])
        return self.pixels[start : start + math.prod(shape)].view(shape)

    def _padded(
        self, height: int, width: int, offsets: Tensor, heights: Tensor, widths: Tensor
    ) -> Tensor:
        # Overlapping windows of one row's length, one starting at every byte, are a view without
        # a copy: all rows of all pictures are then one gather. A row of a narrower picture runs
        # over into the next one, and the file ends with room for the last.
        y, x = (torch.arange(side, device=self.device) for side in (height, width))
        inside = y < heights[:, None]
        starts = offsets[:, None] + y * widths[:, None].long() * self.channels
        windows = self.pixels.unfold(0, width * self.channels, 1)
        pixels = windows[torch.where(inside, starts, 0)].unflatten(2, (width, self.channels))
        return pixels.mul_((inside[:, :, None] & (x < widths[:, None, None]))[..., None])

    def mean_std(self, sample: int = 1000) -> tuple[list[float], list[float]]:
        """Mean and standard deviation of each channel in 0..1, over evenly spaced pictures."""
        spaced = torch.linspace(0, len(self) - 1, min(sample, len(self))).long().tolist()
        return mean_std(self.picture(i) for i in spaced)


def mean_std(pictures: Iterable[Tensor]) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel in 0..1 of uint8 `(height, width, channels)`."""
    sums, count = torch.zeros(()), 0
    for picture in pictures:
        values = picture.flatten(0, 1).double() / 255
        sums = sums + torch.stack([values.sum(0), values.square().sum(0)]).cpu()
        count += len(values)
    mean, square = sums / count
    return mean.tolist(), (square - mean.square()).clamp(0).sqrt().tolist()
