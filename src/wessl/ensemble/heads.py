"""``m`` projection heads and codebooks as stacked weights: batched products, no loop over heads."""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from wessl.ensemble.checks import at_least_fp32
from wessl.matrix_products import baddbmm, matmul

Share = Literal["projection", "codebook"]


def on_gpu(x: Tensor) -> bool:
    """Where memory is short and computing a layer's GELU again is cheap."""
    return x.is_cuda


class StackedLinear(nn.Module):
    """``m`` linear layers side by side: ``(n, in)`` or ``(m, n, in)`` to ``(m, n, out)``.

    Weights lie as ``(m, in, out)``, the layout in which their gradient comes out of the product.
    """

    def __init__(self, m: int, in_dim: int, out_dim: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(m, in_dim, out_dim))
        self.bias = nn.Parameter(torch.zeros(m, out_dim))
        nn.init.trunc_normal_(self.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        if not on_gpu(x):
            # The first layer's input is common to all heads.
            return baddbmm(self.bias, x.expand(len(self.weight), -1, -1), self.weight)
        # On a GPU baddbmm writes the bias out over all rows first; apart, GELU's kernel adds it.
        product = x @ self.weight if x.dim() == 3 else self._wide(x)
        return product + self.bias[:, None].to(product.dtype)

    def _wide(self, x_ni: Tensor) -> Tensor:
        """One product with all heads' weights side by side: nothing is kept once for every head."""
        m, _, out = self.weight.shape
        wide = x_ni @ self.weight.transpose(0, 1).flatten(1)
        return wide.unflatten(1, (m, out)).transpose(0, 1)


class Projection(nn.Sequential):
    """Layers one after another; on a GPU what GELU gives is computed again backward, not kept."""

    def forward(self, x: Tensor) -> Tensor:
        layers = iter(self)
        for layer in layers:
            if isinstance(layer, nn.GELU) and on_gpu(x) and x.requires_grad:
                x = checkpoint(
                    _gelu_then, next(layers), x, use_reentrant=False, preserve_rng_state=False
                )
            else:
                x = layer(x)
        return x


def _gelu_then(layer: nn.Module, x: Tensor) -> Tensor:
    return layer(F.gelu(x))


class StackedBatchNorm(nn.Module):
    """Batch normalisation of ``(m, n, d)`` over the images, each head on its own."""

    def __init__(self, m: int, dim: int):
        super().__init__()
        self.norm = nn.BatchNorm1d(m * dim)

    def forward(self, x_mnd: Tensor) -> Tensor:
        m, _, d = x_mnd.shape
        return self.norm(x_mnd.transpose(0, 1).flatten(1)).unflatten(1, (m, d)).transpose(0, 1)


class EnsembleHeads(nn.Module):
    """``m`` independent projection MLPs, each with its codebook of ``c`` unit codes.

    Maps representations ``(n, in_dim)`` to the cosines ``(m, n, c)`` between each head's embedding
    and its codes; divide by a temperature to get logits. ``share`` keeps one part common to all
    heads: the paper's "projection only" ensemble is ``share="codebook"``. The two options are the
    original recipes': ``batch_norm`` after each hidden layer (MSN), ``weight_norm`` a free length
    for every code beside its direction (DINO).

    >>> heads = EnsembleHeads(384, num_heads=16, num_codes=1024)
    >>> heads(torch.randn(8, 384)).shape
    torch.Size([16, 8, 1024])
    """

    def __init__(
        self,
        in_dim: int,
        num_heads: int = 16,
        hidden_dim: int = 1024,
        depth: int = 3,
        embed_dim: int = 256,
        num_codes: int = 1024,
        share: Share | None = None,
        batch_norm: bool = False,
        weight_norm: bool = False,
    ):
        super().__init__()
        sizes = dict(in_dim=in_dim, num_heads=num_heads, hidden_dim=hidden_dim, depth=depth)
        sizes |= dict(embed_dim=embed_dim, num_codes=num_codes)
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        if share not in (None, "projection", "codebook"):
            raise ValueError(f"share must be None, 'projection' or 'codebook', got {share!r}")
        self.in_dim, self.num_heads, self.num_codes = in_dim, num_heads, num_codes
        self.share = share
        m_projection = 1 if share == "projection" else num_heads
        m_codebook = 1 if share == "codebook" else num_heads

        widths = [in_dim] + [hidden_dim] * (depth - 1) + [embed_dim]
        layers: list[nn.Module] = []
        for i in range(depth):
            layers.append(StackedLinear(m_projection, widths[i], widths[i + 1]))
            if i < depth - 1:
                layers += [StackedBatchNorm(m_projection, hidden_dim)] if batch_norm else []
                layers.append(nn.GELU())
        self.projection = Projection(*layers)
        self.codebook = nn.Parameter(torch.empty(m_codebook, num_codes, embed_dim))
        self.code_length = nn.Parameter(torch.ones(m_codebook, num_codes)) if weight_norm else None
        if weight_norm:  # a linear layer's own default, as DINO leaves it
            nn.init.uniform_(self.codebook, -1 / math.sqrt(embed_dim), 1 / math.sqrt(embed_dim))
        else:
            nn.init.trunc_normal_(self.codebook, std=0.02)

    def embed(self, x: Tensor) -> Tensor:
        """Unit embeddings ``(m, n, embed_dim)``; ``m`` is 1 when the projection is shared."""
        if x.dim() != 2 or x.shape[1] != self.in_dim:
            raise ValueError(f"expected (n, {self.in_dim}), got {tuple(x.shape)}")
        return F.normalize(at_least_fp32(self.projection(x)), dim=-1)

    def codes(self) -> Tensor:
        """Codes ``(m, c, embed_dim)``, of length 1 or as learnt; ``m`` is 1 when shared."""
        unit = F.normalize(at_least_fp32(self.codebook), dim=-1)
        return unit if self.code_length is None else unit * self.code_length[..., None]

    def forward(self, x: Tensor) -> Tensor:
        return self.cosines(self.embed(x), self.codes())

    def cosines(self, embeddings: Tensor, codes: Tensor) -> Tensor:
        """``(m, n, c)`` of what ``embed`` and ``codes`` gave, by one product."""
        m, n = self.num_heads, embeddings.shape[1]
        # In fp32 under autocast too: a bf16 step near 1 is 0.16 nats at temperature 0.025.
        with torch.autocast(embeddings.device.type, enabled=False):
            if len(codes) == 1 and m > 1:  # one codebook for all: one tall product
                return matmul(embeddings.flatten(0, 1), codes[0].mT).unflatten(0, (m, n))
            if len(embeddings) == 1 and m > 1:  # one embedding for all: one wide product
                wide = matmul(embeddings[0], codes.flatten(0, 1).mT)
                return wide.unflatten(1, (m, self.num_codes)).transpose(0, 1)
            return matmul(embeddings, codes.mT)

    def gradient_of_embeddings(self, slope_mnc: Tensor, codes: Tensor) -> Tensor:
        """From the cosines' gradient, by the products of ``cosines`` turned round."""
        m, n, _ = slope_mnc.shape
        with torch.autocast(slope_mnc.device.type, enabled=False):
            if len(codes) == 1 and m > 1:
                return matmul(slope_mnc.flatten(0, 1), codes[0]).unflatten(0, (m, n))
            if self.share == "projection" and m > 1:
                wide = slope_mnc.transpose(0, 1).flatten(1)
                return matmul(wide, codes.flatten(0, 1))[None]
            return matmul(slope_mnc, codes)

    def gradient_of_codes(self, slope_mnc: Tensor, embeddings: Tensor) -> Tensor:
        """Likewise."""
        m, _, c = slope_mnc.shape
        with torch.autocast(slope_mnc.device.type, enabled=False):
            if self.share == "codebook" and m > 1:
                return matmul(slope_mnc.flatten(0, 1).mT, embeddings.flatten(0, 1))[None]
            if len(embeddings) == 1 and m > 1:
                wide = slope_mnc.transpose(0, 1).flatten(1)
                return matmul(wide.mT, embeddings[0]).unflatten(0, (m, c))
            return matmul(slope_mnc.mT, embeddings)
