"""The vision transformer, plainly: every token through every block, in one precision."""

import torch
import torch.nn.functional as F
from torch import Tensor

from wessl.encoder.block import Block
from wessl.encoder.vit import ViT


def cls_token(vit: ViT, images: Tensor, drop: Tensor | None) -> Tensor:
    """``vit.cls(images, drop=drop)`` by PyTorch's own layers; the residual stream stays fp32."""
    x = vit.patch_embed.proj(images).flatten(2).transpose(1, 2)
    x = x + positions(vit, images.shape[2] // vit.patch_size, images.shape[3] // vit.patch_size)
    first = (vit.cls_token + vit.pos_embed[:, :1]).expand(len(x), -1, -1)
    x = torch.cat([first, x], 1).float()
    for i, block in enumerate(vit.blocks):
        assert isinstance(block, Block)
        draws = None if drop is None or not vit.training else drop[:, i]
        rate = vit.drop_path * i / max(1, vit.depth - 1)
        x = x + survivors(attention(block, block.norm1(x), vit.heads), draws, 0, rate)
        hidden = F.gelu(block.mlp.fc1(block.norm2(x)))
        x = x + survivors(block.mlp.fc2(hidden), draws, 1, rate)
    return vit.norm(x)[:, 0]


def attention(block: Block, x: Tensor, heads: int) -> Tensor:
    b, n, dim = x.shape
    qkv = block.attn.qkv(x).reshape(b, n, 3, heads, dim // heads).permute(2, 0, 3, 1, 4)
    mixed = F.scaled_dot_product_attention(*qkv.unbind(0))
    return block.attn.proj(mixed.transpose(1, 2).reshape(b, n, dim))


def survivors(branch: Tensor, draws: Tensor | None, which: int, rate: float) -> Tensor:
    """Drop-path by the given draws, so that both ways drop the same branches."""
    if draws is None or rate == 0:
        return branch
    keep = (draws[:, which] >= rate).to(branch.dtype)
    return branch * (keep / (1 - rate))[:, None, None]


def positions(vit: ViT, rows: int, columns: int) -> Tensor:
    own = vit.pos_embed[:, 1:]
    if (rows, columns) == vit.grid:
        return own
    plane = own.unflatten(1, vit.grid).permute(0, 3, 1, 2)
    plane = F.interpolate(plane, size=(rows, columns), mode="bicubic", align_corners=False)
    return plane.flatten(2).transpose(1, 2)
