"""The vision transformer, with timm's parameter names, for pictures of any size.

Its drop-path takes its random draws from outside when given (``drop``), because training makes
every draw a function of seed, step and picture.
"""

import itertools
import math
from collections.abc import Sequence
from typing import cast, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wessl.encoder import kernels

SIZES = {  # dim, depth, heads
    "T": (192, 12, 3),
    "S": (384, 12, 6),
    "B": (768, 12, 12),
    "L": (1024, 24, 16),
}


class PatchEmbed(nn.Module):
    def __init__(self, patch_size: int, in_channels: int, dim: int):
        super().__init__()
        self.proj = nn.Conv2d(in_channels, dim, patch_size, patch_size)

    def forward(self, images: Tensor) -> Tensor:
        """``(b, ch, h, w) -> (b, patches, dim)``: the convolution written as one matrix product."""
        p = self.proj.kernel_size[0]
        b, ch, h, w = images.shape
        rows, columns = h // p, w // p
        patches = images[:, :, : rows * p, : columns * p].reshape(b, ch, rows, p, columns, p)
        patches = patches.permute(0, 2, 4, 1, 3, 5).reshape(b, rows * columns, ch * p * p)
        return F.linear(patches, self.proj.weight.flatten(1), self.proj.bias)


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(self.mixed(x))

    def mixed(self, x: Tensor) -> Tensor:
        """What the tokens take from each other, ``(b, n, dim)``, before ``proj``."""
        return kernels.linear_attention(x, self.qkv.weight, self.qkv.bias, self.heads)

    def of_cls(self, x: Tensor) -> Tensor:
        """``forward(x)[:, :1]``: the first token's query on everybody's keys."""
        dim = x.shape[-1]
        weight, bias = self.qkv.weight, self.qkv.bias
        (q,) = self._split(F.linear(x[:, :1], weight[:dim], bias[:dim]))
        k, v = self._split(F.linear(x, weight[dim:], bias[dim:]))
        return self.proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    def maps(self, x: Tensor) -> Tensor:
        """Who looks at whom: ``(b, heads, tokens, tokens)``, rows summing to 1."""
        q, k, _ = self._split(self.qkv(x))
        return (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1)

    def _split(self, x: Tensor) -> tuple[Tensor, ...]:
        """``(b, n, parts * dim) -> parts x (b, heads, n, dim / heads)``."""
        head_dim = self.qkv.in_features // self.heads
        return x.unflatten(2, (-1, self.heads, head_dim)).permute(2, 0, 3, 1, 4).unbind(0)


class Mlp(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.fc1 = nn.Linear(dim, 4 * dim)
        self.fc2 = nn.Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.hidden(x))

    def hidden(self, x: Tensor) -> Tensor:
        """``(b, n, 4 dim)``, before ``fc2``."""
        return kernels.linear_gelu(x, self.fc1.weight, self.fc1.bias)


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, drop_path: float):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = Mlp(dim)
        self.drop_path = drop_path

    def forward(
        self, x: Tensor, drop: Tensor | None = None, normed: Tensor | None = None
    ) -> Tensor:
        """``drop`` holds this block's uniform draws, ``(b, 2)``: one for each residual branch.

        ``normed`` is ``norm1(x)``, where that is known already.
        """
        x, normed = self._attend(x, self.norm1(x) if normed is None else normed, drop)
        return kernels.add_plain(x, self._scale(drop, 1, x), self.mlp(normed))

    def chained(
        self, x: Tensor, normed: Tensor, then: nn.LayerNorm, drop: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """``forward(x, drop, normed)`` and ``then`` of it, the next block's first norm."""
        x, normed = self._attend(x, normed, drop)
        scale = self._scale(drop, 1, x)
        return kernels.linear_add_norm(x, scale, self.mlp.hidden(normed), self.mlp.fc2, then)

    def of_cls(self, x: Tensor, drop: Tensor | None = None, normed: Tensor | None = None) -> Tensor:
        """``forward(x, drop, normed)[:, :1]``, without computing the other tokens."""
        normed = self.norm1(x) if normed is None else normed
        cls = kernels.add_plain(x[:, :1], self._scale(drop, 0, x), self.attn.of_cls(normed))
        return kernels.add_plain(cls, self._scale(drop, 1, x), self.mlp(self.norm2(cls)))

    def _attend(self, x: Tensor, normed: Tensor, drop: Tensor | None) -> tuple[Tensor, Tensor]:
        """The stream after the first branch, and ``norm2`` of it."""
        scale, mixed = self._scale(drop, 0, x), self.attn.mixed(normed)
        return kernels.linear_add_norm(x, scale, mixed, self.attn.proj, self.norm2)

    def _scale(self, drop: Tensor | None, which: int, x: Tensor) -> Tensor | None:
        """Drop-path: 0 for pictures that skip the branch, more than 1 for the rest; None: all 1."""
        if not self.training or self.drop_path == 0:
            return None
        draw = torch.rand(len(x), device=x.device) if drop is None else drop[:, which]
        kept = (draw >= self.drop_path).to(torch.promote_types(x.dtype, torch.float32))
        return kept / (1 - self.drop_path)


class ViT(nn.Module):
    """``(b, ch, h, w) -> (b, 1 + patches, dim)`` after the final norm; token 0 is ``[CLS]``.

    A list of batches of different resolutions gives the list of their outputs. ``keep`` are the
    patches each picture keeps, ``(b, k)`` indices: the others are removed before the first block.
    ``drop`` are uniform draws ``(b, depth, 2)`` for drop-path in training (default: torch's own).
    Parameters and their names are timm's ``vit_*_patch*``, without a classifier.

    >>> vit = ViT("T", patch_size=8, image_size=64)
    >>> vit(torch.randn(2, 3, 64, 64)).shape
    torch.Size([2, 65, 192])
    >>> [tokens.shape[1] for tokens in vit([torch.randn(2, 3, 64, 64), torch.randn(4, 3, 32, 40)])]
    [65, 21]
    """

    patch_tokens = True
    chain = True
    """Whether a block may compute the next one's first norm; where each holds its own shard of the
    weights, only its own are at hand."""

    def __init__(
        self,
        size: str = "S",
        patch_size: int = 16,
        image_size: int | tuple[int, int] = 224,
        in_channels: int = 3,
        drop_path: float = 0.0,
        dim: int | None = None,
        depth: int | None = None,
        heads: int | None = None,
    ):
        super().__init__()
        if size not in SIZES:
            raise ValueError(f"size must be one of {', '.join(SIZES)}, got {size!r}")
        self.dim, self.depth, self.heads = (
            named if given is None else given
            for given, named in zip((dim, depth, heads), SIZES[size], strict=True)
        )
        counts = dict(dim=self.dim, depth=self.depth, heads=self.heads, patch_size=patch_size)
        for name, count in (counts | dict(in_channels=in_channels)).items():
            if count < 1:
                raise ValueError(f"{name} must be at least 1, got {count}")
        if self.dim % self.heads:
            raise ValueError(f"dim {self.dim} is not a multiple of heads {self.heads}")
        if not 0 <= drop_path < 1:
            raise ValueError(f"drop_path must lie in [0, 1), got {drop_path}")
        height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
        self.patch_size, self.in_channels = patch_size, in_channels
        self.grid = self._grid(height, width)

        self.patch_embed = PatchEmbed(patch_size, in_channels, self.dim)
        self.cls_token = nn.Parameter(torch.zeros(1, 1, self.dim))
        self.pos_embed = nn.Parameter(torch.zeros(1, 1 + self.grid[0] * self.grid[1], self.dim))
        rates = [drop_path * i / max(1, self.depth - 1) for i in range(self.depth)]
        self.blocks = nn.ModuleList(Block(self.dim, self.heads, rate) for rate in rates)
        self.norm = nn.LayerNorm(self.dim, eps=1e-6)
        self._initialise()

    def _initialise(self) -> None:
        nn.init.trunc_normal_(self.pos_embed, std=0.02)
        nn.init.trunc_normal_(self.cls_token, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    @overload
    def forward(
        self, images: Tensor, keep: Tensor | None = None, drop: Tensor | None = None
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        images: list[Tensor],
        keep: list[Tensor | None] | None = None,
        drop: list[Tensor | None] | None = None,
    ) -> list[Tensor]: ...

    def forward(self, images, keep=None, drop=None):  # type: ignore[no-untyped-def]
        if isinstance(images, (list, tuple)):
            return self._each(self.forward, images, keep, drop)
        x, normed = self._before_last(self._embed(images, keep), drop)
        return self.norm(self._last_block(x, _of_block(drop, -1), normed))

    @overload
    def cls(
        self, images: Tensor, keep: Tensor | None = None, drop: Tensor | None = None
    ) -> Tensor: ...

    @overload
    def cls(
        self,
        images: list[Tensor],
        keep: list[Tensor | None] | None = None,
        drop: list[Tensor | None] | None = None,
    ) -> list[Tensor]: ...

    def cls(self, images, keep=None, drop=None):  # type: ignore[no-untyped-def]
        """``forward(images)[:, 0]``: the last block computes nothing for the other tokens."""
        if isinstance(images, (list, tuple)):
            return self._each(self.cls, images, keep, drop)
        x, normed = self._before_last(self._embed(images, keep), drop)
        return self.norm(self._last_block.of_cls(x, _of_block(drop, -1), normed)[:, 0])

    def last_blocks(self, images: Tensor, n: int = 4) -> list[Tensor]:
        """Outputs of the last ``n`` blocks, each after the final norm, the last one last."""
        if not 1 <= n <= self.depth:
            raise ValueError(f"n must lie in 1..{self.depth}, got {n}")
        x, outputs = self._embed(images, None), []
        for i, block in enumerate(self.blocks):
            x = block(x)
            if i >= self.depth - n:
                outputs.append(self.norm(x))
        return outputs

    def attention_maps(self, images: Tensor) -> Tensor:
        """The last block's attention, ``(b, heads, 1 + patches, 1 + patches)``."""
        x, normed = self._before_last(self._embed(images, None), None)
        return self._last_block.attn.maps(self._last_block.norm1(x) if normed is None else normed)

    def _before_last(self, x: Tensor, drop: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """The stream that reaches the last block, and its first norm where that comes with it."""
        blocks = cast(Sequence[Block], self.blocks)
        if not kernels.in_half(x) or not self.chain:
            for i, block in enumerate(blocks[:-1]):
                x = block(x, _of_block(drop, i))
            return x, None
        normed = blocks[0].norm1(x)
        for i, (block, following) in enumerate(itertools.pairwise(blocks)):
            x, normed = block.chained(x, normed, following.norm1, _of_block(drop, i))
        return x, normed

    @property
    def _last_block(self) -> Block:
        return cast(Block, self.blocks[-1])

    def _embed(self, images: Tensor, keep: Tensor | None) -> Tensor:
        if images.dim() != 4 or images.shape[1] != self.in_channels:
            raise ValueError(f"expected (b, {self.in_channels}, h, w), got {tuple(images.shape)}")
        x = self.patch_embed(images) + self._positions(*images.shape[2:])
        if keep is not None:
            if keep.dim() != 2 or len(keep) != len(x) or keep.dtype != torch.int64:
                found = f"{keep.dtype} {tuple(keep.shape)}"
                raise ValueError(f"keep must be int64 ({len(x)}, k) patch numbers, got {found}")
            x = x.gather(1, keep[..., None].expand(-1, -1, self.dim))
        cls = (self.cls_token + self.pos_embed[:, :1]).expand(len(x), -1, -1)
        return kernels.stream(torch.cat([cls, x], 1))

    def _positions(self, height: int, width: int) -> Tensor:
        """Patch position embeddings, ``(1, patches, dim)``, bicubic to the picture's exact grid."""
        grid = self._grid(height, width)
        positions = self.pos_embed[:, 1:]
        if grid == self.grid:
            return positions
        plane = positions.unflatten(1, self.grid).permute(0, 3, 1, 2).float()
        plane = F.interpolate(plane, size=grid, mode="bicubic", align_corners=False)
        return plane.flatten(2).transpose(1, 2).to(positions.dtype)

    def _grid(self, height: int, width: int) -> tuple[int, int]:
        if min(height, width) < self.patch_size:
            raise ValueError(
                f"a {height}x{width} picture is smaller than a patch, {self.patch_size}"
            )
        return height // self.patch_size, width // self.patch_size

    def _each(self, method, images, keep, drop):  # type: ignore[no-untyped-def]
        # One pass a resolution. Dense layers could run on all tokens at once; whether that pays
        # depends on attention reading packed tokens too, and is to be decided by measurement.
        none = [None] * len(images)
        return [method(*one) for one in zip(images, keep or none, drop or none, strict=True)]


def _of_block(drop: Tensor | None, i: int) -> Tensor | None:
    return None if drop is None else drop[:, i]
