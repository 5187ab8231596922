"""The parts of the vision transformer.

Tokens are ``(b, n, dim)``; with ``segments`` they are one stream ``(T, dim)`` of several batches.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wessl.encoder import kernels
from wessl.encoder.segments import Segments
from wessl.matrix_products import Linear, linear


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
        return linear(patches, self.proj.weight.flatten(1), self.proj.bias)


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = Linear(dim, 3 * dim)
        self.proj = Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(self.mixed(x))

    def mixed(self, x: Tensor, segments: Segments | None = None) -> Tensor:
        """What the tokens take from each other, before ``proj``."""
        weight, bias = self.qkv.weight, self.qkv.bias
        return kernels.linear_attention(x, weight, bias, self.heads, segments)

    def of_cls(self, x: Tensor, segments: Segments | None = None) -> Tensor:
        """``forward(x)[:, :1]``: the first token's query on everybody's keys."""
        dim = x.shape[-1]
        weight, bias = self.qkv.weight, self.qkv.bias
        q = linear(_first(x, segments), weight[:dim], bias[:dim])
        kv = linear(x, weight[dim:], bias[dim:])
        if segments is None:
            return self.proj(self._look(q, kv))
        batches = zip(segments.split_pictures(q), segments.split(kv), strict=True)
        return self.proj(torch.cat([self._look(*batch) for batch in batches]))

    def _look(self, q: Tensor, kv: Tensor) -> Tensor:
        """What queries ``(b, 1, dim)`` find in keys and values ``(b, n, 2 dim)``."""
        (q,), (k, v) = self._split(q), self._split(kv)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)

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
        self.fc1 = Linear(dim, 4 * dim)
        self.fc2 = Linear(4 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.hidden(x))

    def hidden(self, x: Tensor) -> Tensor:
        """``(..., 4 dim)``, before ``fc2``."""
        return kernels.linear_gelu(x, self.fc1.weight, self.fc1.bias)


class Block(nn.Module):
    def __init__(self, dim: int, heads: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim, eps=1e-6)
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = Mlp(dim)

    def forward(
        self,
        x: Tensor,
        scale: Tensor | None = None,
        normed: Tensor | None = None,
        segments: Segments | None = None,
    ) -> Tensor:
        """``scale``, ``(2, b)``, multiplies each picture's two residual branches; None is 1.

        With segments it is that of each token's picture, ``(2, T)``. ``normed`` is ``norm1(x)``,
        where that is known already.
        """
        x, normed = self._attend(x, self.norm1(x) if normed is None else normed, scale, segments)
        return kernels.add_plain(x, _branch(scale, 1), self.mlp(normed))

    def chained(
        self,
        x: Tensor,
        normed: Tensor,
        then: nn.LayerNorm,
        scale: Tensor | None,
        segments: Segments | None,
    ) -> tuple[Tensor, Tensor]:
        """``forward`` of the same, and ``then`` of that: the next block's first norm."""
        x, normed = self._attend(x, normed, scale, segments)
        hidden = self.mlp.hidden(normed)
        return kernels.linear_add_norm(x, _branch(scale, 1), hidden, self.mlp.fc2, then)

    def of_cls(
        self,
        x: Tensor,
        scale: Tensor | None = None,
        normed: Tensor | None = None,
        segments: Segments | None = None,
    ) -> Tensor:
        """``forward(x, scale, normed)[:, :1]``, without computing the other tokens.

        With segments that of all pictures, and ``scale`` has a number a picture.
        """
        mixed = self.attn.of_cls(self.norm1(x) if normed is None else normed, segments)
        cls = kernels.add_plain(_first(x, segments), _branch(scale, 0), mixed)
        return kernels.add_plain(cls, _branch(scale, 1), self.mlp(self.norm2(cls)))

    def _attend(
        self, x: Tensor, normed: Tensor, scale: Tensor | None, segments: Segments | None
    ) -> tuple[Tensor, Tensor]:
        """The stream after the first branch, and ``norm2`` of it."""
        mixed = self.attn.mixed(normed, segments)
        return kernels.linear_add_norm(x, _branch(scale, 0), mixed, self.attn.proj, self.norm2)


def _branch(scale: Tensor | None, which: int) -> Tensor | None:
    return None if scale is None else scale[which]


def _first(x: Tensor, segments: Segments | None) -> Tensor:
    """Every picture's first token, ``(b, 1, dim)``."""
    return x[:, :1] if segments is None else segments.first_tokens(x)
