"""The encoders once more, as graphs for pictures of any size.

A graph is recorded once and must hold for every picture. What the encoders decide or look up by a
picture's size (positions for its grid, the cells of a pool) is therefore a matrix that the graph
computes from the size.
"""

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wessl.encoder.conv import ConvNet
from wessl.encoder.vit import ViT


class Graph(nn.Module):
    """``images (b, ch, h, w) -> cls (b, dim), patches (b, n, dim)``, what the encoder computes.

    With ``normalise`` its images are pixels from 0 to 1, otherwise already normalised.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, encoder: nn.Module, described: dict[str, Any], normalise: bool):
        super().__init__()
        self.tokens = VitTokens(encoder) if isinstance(encoder, ViT) else ConvTokens(encoder)
        self.normalise = normalise
        for name in ("mean", "std"):
            self.register_buffer(name, torch.tensor(described[name]).view(-1, 1, 1))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        return self.tokens(self.prepared(images))

    def prepared(self, images: Tensor) -> Tensor:
        """As the encoder takes them."""
        return (images - self.mean) / self.std if self.normalise else images


class VitTokens(nn.Module):
    def __init__(self, vit: ViT):
        super().__init__()
        self.vit = vit

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        vit, proj = self.vit, self.vit.patch_embed.proj
        cells = F.conv2d(images, proj.weight, proj.bias, stride=vit.patch_size)
        b, _, rows, columns = cells.shape
        positions = vit.pos_embed[:, 1:].unflatten(1, vit.grid).permute(0, 3, 1, 2)
        down = bicubic_matrix(vit.grid[0], rows)
        across = bicubic_matrix(vit.grid[1], columns)
        cells = cells + down @ positions @ across.T
        cls = (vit.cls_token + vit.pos_embed[:, :1]).expand(b, -1, -1)
        x = torch.cat([cls, cells.flatten(2).transpose(1, 2)], 1)
        for block in vit.blocks:
            x = block(x)
        x = vit.norm(x)
        return x[:, 0], x[:, 1:]


class ConvTokens(nn.Module):
    def __init__(self, encoder: nn.Module):
        super().__init__()
        self.net = cast(ConvNet, encoder)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        net = self.net
        cells = net.blocks(F.relu(net.norm(net.stem(images))))
        _, _, rows, columns = cells.shape
        pooled = pool_matrix(rows, net.grid) @ cells @ pool_matrix(columns, net.grid).T
        return net.read(pooled.flatten(1)), cells.flatten(2).transpose(1, 2)


def bicubic_matrix(inputs: int, outputs: int) -> Tensor:
    """``(outputs, inputs)``: ``F.interpolate(..., mode="bicubic")`` along one side.

    ONNX's own Resize reads other points when a side becomes 1, so the graph does not use it.

    >>> torch.equal(bicubic_matrix(5, 5), torch.eye(5))
    True
    """
    at = (torch.arange(outputs) + 0.5) * (inputs / outputs) - 0.5
    first = at.floor()
    matrix = torch.zeros(1, inputs)
    for tap in (-1, 0, 1, 2):
        weight = _cubic((at - first - tap).abs())
        cell = (first + tap).clamp(0, inputs - 1)
        matrix = matrix + weight[:, None] * (cell[:, None] == torch.arange(inputs)).float()
    return matrix


def _cubic(x: Tensor, a: float = -0.75) -> Tensor:
    """Keys' kernel with torch's parameter, for distances up to 2."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return torch.where(x <= 1, near, far)


def pool_matrix(inputs: int, outputs: int) -> Tensor:
    """``(outputs, inputs)``: ``F.adaptive_avg_pool2d`` along one side.

    >>> pool_matrix(3, 2)
    tensor([[0.5000, 0.5000, 0.0000],
            [0.0000, 0.5000, 0.5000]])
    """
    cells, bins = torch.arange(inputs), torch.arange(outputs)[:, None]
    starts = bins * inputs // outputs
    ends = ((bins + 1) * inputs + outputs - 1) // outputs
    inside = ((cells >= starts) & (cells < ends)).float()
    return inside / inside.sum(1, keepdim=True)
