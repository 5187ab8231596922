"""Random numbers as a pure function of (seed, step, picture, purpose).

No generator carries state from step to step: a resumed run, a run on another number of processes
and a test draw the same numbers, because they name the same seed, step, picture and purpose.
"""

import hashlib

import torch
from torch import Tensor

# SplitMix64 (Steele, Lea and Flood, 2014): the increment and the two multipliers, as signed 64 bit.
_INCREMENT = 0x9E3779B97F4A7C15 - 2**64
_FIRST = 0xBF58476D1CE4E5B9 - 2**64
_SECOND = 0x94D049BB133111EB - 2**64


def uniform(seed: int, step: int, indices: Tensor, purpose: str, count: int) -> Tensor:
    """``(b, count)`` float32 numbers in [0, 1) for the pictures ``indices`` (b,), on their device.

    Row i depends on ``indices[i]`` alone, not on the other pictures of the batch; column j does
    not depend on ``count``. The same bits come out on every device.

    >>> two = uniform(seed=0, step=7, indices=torch.tensor([4, 9]), purpose="flip", count=3)
    >>> one = uniform(seed=0, step=7, indices=torch.tensor([9]), purpose="flip", count=3)
    >>> two.shape, torch.equal(two[1:], one)
    (torch.Size([2, 3]), True)
    """
    start = _mix(indices.to(torch.int64) * _INCREMENT + key(seed, step, purpose))
    counter = torch.arange(1, count + 1, device=indices.device) * _INCREMENT
    bits = _mix(start[:, None] + counter)
    # float32 holds 24 bits exactly; more would round some draws up to 1.
    return _shift_right(bits, 40).to(torch.float32) * 2.0**-24


def key(seed: int, step: int, purpose: str) -> int:
    """The part all pictures share, hashed once on the host into a signed 64-bit integer."""
    digest = hashlib.blake2b(f"{seed}|{step}|{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _mix(x: Tensor) -> Tensor:
    """SplitMix64's finaliser: flipping one bit of an int64 flips about half of the result's."""
    x = (x ^ _shift_right(x, 30)) * _FIRST
    x = (x ^ _shift_right(x, 27)) * _SECOND
    return x ^ _shift_right(x, 31)


def _shift_right(x: Tensor, bits: int) -> Tensor:
    # int64's >> copies the sign bit; the mask makes it the unsigned shift the hash is defined by.
    return (x >> bits) & ((1 << (64 - bits)) - 1)
