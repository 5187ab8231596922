"""A start for transformers with few pictures: attention that looks as if it had been trained.

In trained transformers queries resemble keys, so that a token looks at what is like it, and the
value and output layers together resemble minus the identity (Trockman & Kolter, "Mimetic
Initialization of Self-Attention Layers", ICML 2023). With positions made of sines, attention is
local from the first step, which few pictures alone teach slowly.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import cast

import torch
from torch import Tensor

from wessl.encoder.block import Block
from wessl.encoder.vit import ViT

QUERIES_KEYS = (0.7, 0.7)
VALUES_OUTPUT = (0.4, -0.4)
"""How much noise and how much identity the products of the two pairs of layers have."""


@torch.no_grad()
def mimetic_(vit: ViT) -> None:
    """Sets positions and attention of every block; the rest stays as it is."""
    if vit.pos_embed.is_meta:  # a rehearsal
        return
    vit.pos_embed[:, 1:] = sines(*vit.grid, vit.dim)
    with _one_thread():
        for block in cast(Sequence[Block], vit.blocks):
            _look_trained(block, vit.heads)


def _look_trained(block: Block, heads: int) -> None:
    dim = block.attn.proj.weight.shape[0]
    queries, keys, values = block.attn.qkv.weight.unflatten(0, (3, heads, dim // heads))
    for head in range(heads):
        left, right = factors(_noisy_identity(dim, *QUERIES_KEYS), dim // heads)
        queries[head], keys[head] = left.T, right.T
    left, right = factors(_noisy_identity(dim, *VALUES_OUTPUT), dim)
    block.attn.proj.weight.copy_(left)
    values.copy_(right.T.view_as(values))


@contextmanager
def _one_thread() -> Iterator[None]:
    """More win nothing with matrices so small, and wait for each other where cores are busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def sines(rows: int, columns: int, dim: int) -> Tensor:
    """A position's row and column in sines and cosines of falling frequency, ``(patches, dim)``."""
    frequencies = 10_000 ** (-torch.arange(0, dim, 4) / dim)
    waves = []
    for places in torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij"):
        angles = places.reshape(-1, 1) * frequencies
        waves += [angles.sin(), angles.cos()]
    return torch.cat(waves, 1)[:, :dim]


def factors(product: Tensor, rank: int) -> tuple[Tensor, Tensor]:
    """Two matrices ``(d, rank)``, equally large, whose ``left @ right.T`` is nearest to it."""
    u, s, v = torch.linalg.svd(product)
    root = s[:rank].sqrt()
    return u[:, :rank] * root, v[:rank].T * root


def _noisy_identity(dim: int, noise: float, identity: float) -> Tensor:
    return noise * torch.randn(dim, dim) / dim**0.5 + identity * torch.eye(dim)
