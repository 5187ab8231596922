"""A small residual network for small pictures, where a transformer has too few patches to see."""

import itertools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wessl.encoder.sizes import GRID
from wessl.matrix_products import Linear


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions around a skip; halves the resolution when ``stride`` is 2.

    Group norm instead of batch norm: no running statistics, so teacher and student, one process
    and many, and training and evaluation all compute the same function.
    """

    def __init__(self, in_dim: int, dim: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(in_dim, dim, 3, stride, padding=1, bias=False)
        self.norm1 = group_norm(dim)
        self.conv2 = nn.Conv2d(dim, dim, 3, padding=1, bias=False)
        self.norm2 = group_norm(dim)
        same = in_dim == dim and stride == 1
        self.skip = None if same else nn.Conv2d(in_dim, dim, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + (x if self.skip is None else self.skip(x)))


class ConvNet(nn.Module):
    """A plain small ResNet as an encoder: a stem that halves the picture, then a block a width.

    Every block but the first halves the resolution again. Its final cells are the patch tokens.
    Token 0 is a linear reading of them, pooled to ``grid x grid``: where a stroke stands matters
    in small pictures, and the plain mean of all cells would forget it. Any picture size goes.

    >>> ConvNet(widths=(24, 48, 96), in_channels=1)(torch.randn(2, 1, 16, 16)).shape
    torch.Size([2, 17, 96])
    """

    patch_tokens = True

    def __init__(
        self, widths: Sequence[int] = (24, 48, 96), in_channels: int = 3, grid: int = GRID
    ):
        super().__init__()
        if len(widths) < 2:
            raise ValueError(f"widths must name a stem and at least one block, got {widths}")
        self.dim, self.in_channels, self.grid = widths[-1], in_channels, grid
        self.stem = nn.Conv2d(in_channels, widths[0], 3, 2, padding=1, bias=False)
        self.norm = group_norm(widths[0])
        pairs = itertools.pairwise(widths)
        self.blocks = nn.Sequential(
            *(ResidualBlock(a, b, stride=min(i, 1) + 1) for i, (a, b) in enumerate(pairs))
        )
        self.read = Linear(self.dim * grid * grid, self.dim)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        cells = self._cells(images)
        return torch.cat([self._read(cells)[:, None], cells.flatten(2).transpose(1, 2)], 1)

    def cls(self, images: Tensor) -> Tensor:
        """``forward(images)[:, 0]``."""
        return self._read(self._cells(images))

    def _cells(self, images: Tensor) -> Tensor:
        if images.dim() != 4 or images.shape[1] != self.in_channels:
            raise ValueError(f"expected (b, {self.in_channels}, h, w), got {tuple(images.shape)}")
        return self.blocks(F.relu(self.norm(self.stem(images))))

    def _read(self, cells: Tensor) -> Tensor:
        # Pooling to the size the cells have changes nothing, and takes a twelfth of a CPU's step.
        same = cells.shape[2:] == (self.grid, self.grid)
        pooled = cells if same else F.adaptive_avg_pool2d(cells, self.grid)
        return self.read(pooled.flatten(1))


def group_norm(dim: int) -> nn.GroupNorm:
    return nn.GroupNorm(max(g for g in (1, 2, 4, 8) if dim % g == 0), dim)
