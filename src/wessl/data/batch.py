"""Pictures side by side in one tensor, as the device takes them."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from wessl.data.decoding.decode import Pixels


@dataclass
class Batch:
    """Pictures of a batch: `pixels` uint8 (b, H, W, C), zero beyond each one's height and width."""

    pixels: Tensor
    heights: Tensor
    widths: Tensor

    def __len__(self) -> int:
        return len(self.pixels)

    def map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        return Batch(change(self.pixels), change(self.heights), change(self.widths))

    @classmethod
    def collate(cls, pictures: list[Pixels]) -> "Batch":
        """Pad separate arrays to their largest.

        >>> tall, wide = np.zeros((8, 6, 3), np.uint8), np.zeros((4, 9, 3), np.uint8)
        >>> Batch.collate([tall, wide]).pixels.shape
        torch.Size([2, 8, 9, 3])
        """
        heights, widths = ([picture.shape[axis] for picture in pictures] for axis in (0, 1))
        shape = (len(pictures), max(heights), max(widths), pictures[0].shape[2])
        pixels = np.zeros(shape, np.uint8)
        for row, picture in zip(pixels, pictures, strict=True):
            row[: picture.shape[0], : picture.shape[1]] = picture
        sizes = (torch.tensor(side, dtype=torch.int32) for side in (heights, widths))
        return cls(torch.from_numpy(pixels), *sizes)
