"""A small residual network for small pictures, where a transformer has too few patches to see."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class ResidualBlock(nn.Module):
    """Two 3x3 convolutions around a skip; halves the resolution when ``stride`` is 2.

    Group norm instead of batch norm: no running statistics, so teacher and student, one process
    and many, and training and evaluation all compute the same function.
    """

    def __init__(self, in_dim: int, dim: int, stride: int):
        super().__init__()
        groups = max(g for g in (1, 2, 4, 8) if dim % g == 0)
        self.conv1 = nn.Conv2d(in_dim, dim, 3, stride, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(groups, dim)
        self.conv2 = nn.Conv2d(dim, dim, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(groups, dim)
        same = in_dim == dim and stride == 1
        self.skip = None if same else nn.Conv2d(in_dim, dim, 1, stride, bias=False)
        nn.init.zeros_(self.norm2.weight)  # starts as the identity, which trains faster

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(y + (x if self.skip is None else self.skip(x)))


class ConvNet(nn.Module):
    """A plain small ResNet as an encoder: token 0 is the mean of the final grid, then its cells.

    One residual block for each width, each but the first halving the resolution.

    >>> ConvNet(widths=(32, 64, 96), in_channels=1)(torch.randn(2, 1, 16, 16)).shape
    torch.Size([2, 17, 96])
    """

    patch_tokens = True

    def __init__(self, widths: Sequence[int] = (32, 64, 96), in_channels: int = 3):
        super().__init__()
        if not widths:
            raise ValueError("widths must name at least one block")
        self.dim, self.in_channels = widths[-1], in_channels
        ins = [in_channels, *widths[:-1]]
        self.blocks = nn.Sequential(
            *(
                ResidualBlock(in_dim, dim, stride=1 if i == 0 else 2)
                for i, (in_dim, dim) in enumerate(zip(ins, widths, strict=True))
            )
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        cells = self._cells(images).flatten(2).transpose(1, 2)
        return torch.cat([cells.mean(1, keepdim=True), cells], 1)

    def cls(self, images: Tensor) -> Tensor:
        """``forward(images)[:, 0]``."""
        return self._cells(images).mean((2, 3))

    def _cells(self, images: Tensor) -> Tensor:
        if images.dim() != 4 or images.shape[1] != self.in_channels:
            raise ValueError(f"expected (b, {self.in_channels}, h, w), got {tuple(images.shape)}")
        return self.blocks(images)
