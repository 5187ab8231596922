"""The vision transformer, with timm's parameter names, for pictures of any size.

Its drop-path takes its random draws from outside when given (``drop``), because training makes
every draw a function of seed, step and picture.
"""

import itertools
from collections.abc import Callable, Sequence
from typing import cast, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wessl.encoder import kernels
from wessl.encoder.block import Block, PatchEmbed
from wessl.encoder.segments import Segments
from wessl.encoder.sizes import SIZES


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
    packed = True
    """Whether several batches may go through the blocks as one stream, where the kernels allow."""

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
        self.drop_path = drop_path
        self.blocks = nn.ModuleList(Block(self.dim, self.heads) for _ in range(self.depth))
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
            return self._each(self._tokens, Segments.split, images, keep, drop)
        return self._tokens(self._embed(images, keep), self._scale(len(images), drop))

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
            return self._each(self._cls, Segments.split_pictures, images, keep, drop)
        return self._cls(self._embed(images, keep), self._scale(len(images), drop))

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

    def _each(
        self,
        through: Callable[..., Tensor],
        apart: Callable[[Segments, Tensor], list[Tensor]],
        images: Sequence[Tensor],
        keep: Sequence[Tensor | None] | None,
        drop: Sequence[Tensor | None] | None,
    ) -> list[Tensor]:
        """One pass over all tokens, taken ``apart`` again, or one pass a resolution."""
        none = [None] * len(images)
        batches = [self._embed(*one) for one in zip(images, keep or none, strict=True)]
        scales = [self._scale(len(x), d) for x, d in zip(batches, drop or none, strict=True)]
        if not (self.packed and self.chain and kernels.share_a_stream(batches, self.heads)):
            return [through(*one) for one in zip(batches, scales, strict=True)]
        segments = Segments.of(*batches)
        stream = torch.cat([x.flatten(0, 1) for x in batches])
        known = [scale for scale in scales if scale is not None]
        return apart(segments, through(stream, torch.cat(known, -1) if known else None, segments))

    def _scale(self, pictures: int, drop: Tensor | None) -> Tensor | None:
        """Drop-path, ``(depth, 2, pictures)``: 0 where a branch is skipped, more than 1 elsewhere.

        None where nothing is skipped: 1 everywhere.
        """
        if not self.training or self.drop_path == 0:
            return None
        own = self.pos_embed
        rates = torch.linspace(
            0, self.drop_path, self.depth, dtype=torch.float64, device=own.device
        )
        draws = torch.rand(pictures, self.depth, 2, device=own.device) if drop is None else drop
        rates = rates[:, None, None]
        kept = (draws.permute(1, 2, 0) >= rates) / (1 - rates)
        return kept.to(torch.promote_types(own.dtype, torch.float32)).contiguous()

    def _tokens(self, x: Tensor, scale: Tensor | None, segments: Segments | None = None) -> Tensor:
        scale = _of_tokens(scale, segments)
        x, normed = self._before_last(x, scale, segments)
        return self.norm(self._last_block(x, _of_block(scale, -1), normed, segments))

    def _cls(self, x: Tensor, scale: Tensor | None, segments: Segments | None = None) -> Tensor:
        x, normed = self._before_last(x, _of_tokens(scale, segments), segments)
        cls = self._last_block.of_cls(x, _of_block(scale, -1), normed, segments)
        return self.norm(cls[:, 0])

    def _before_last(
        self, x: Tensor, scale: Tensor | None, segments: Segments | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """The stream that reaches the last block, and its first norm where that comes with it."""
        blocks = cast(Sequence[Block], self.blocks)
        if not kernels.in_half(x) or not self.chain:
            for i, block in enumerate(blocks[:-1]):
                x = block(x, _of_block(scale, i), segments=segments)
            return x, None
        normed = blocks[0].norm1(x)
        for i, (block, following) in enumerate(itertools.pairwise(blocks)):
            x, normed = block.chained(x, normed, following.norm1, _of_block(scale, i), segments)
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


def _of_block(scale: Tensor | None, i: int) -> Tensor | None:
    return None if scale is None else scale[i]


def _of_tokens(scale: Tensor | None, segments: Segments | None) -> Tensor | None:
    return scale if scale is None or segments is None else segments.spread(scale)
