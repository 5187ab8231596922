"""The random numbers: pure, independent of the batch, uniform and uncorrelated."""

import hashlib

import numpy as np
import pytest
import torch
from scipy import stats

from wessl.data.draws import uniform

MASK = 2**64 - 1


def splitmix64(state: int) -> int:
    """The reference generator's output function, in Python's unbounded integers."""
    state = (state ^ (state >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    state = (state ^ (state >> 27)) * 0x94D049BB133111EB & MASK
    return state ^ (state >> 31)


def one_draw(seed: int, step: int, index: int, purpose: str, column: int) -> float:
    digest = hashlib.blake2b(f"{seed}|{step}|{purpose}".encode(), digest_size=8).digest()
    start = splitmix64((int.from_bytes(digest, "little") + index * 0x9E3779B97F4A7C15) & MASK)
    state = (start + (column + 1) * 0x9E3779B97F4A7C15) & MASK
    return (splitmix64(state) >> 40) / 2**24


def test_draws_equal_a_loop_of_splitmix64() -> None:
    indices = [0, 1, 17, 1_281_166, 2**40]
    draws = uniform(3, 12345, torch.tensor(indices), "crop", 6)
    loop = [[one_draw(3, 12345, index, "crop", j) for j in range(6)] for index in indices]
    assert draws.dtype == torch.float32
    assert draws.tolist() == loop


def test_draws_are_the_same_in_every_version() -> None:
    draws = uniform(0, 0, torch.arange(2), "flip", 2)
    pinned = [[0.5657336115837097, 0.7001052498817444], [0.305600106716156, 0.7332242727279663]]
    assert draws.tolist() == pinned


def test_draws_are_a_pure_function_of_their_arguments() -> None:
    indices = torch.arange(100)
    first = uniform(1, 2, indices, "mask", 5)
    torch.rand(3)
    uniform(1, 3, indices, "mask", 5)
    assert torch.equal(first, uniform(1, 2, indices, "mask", 5))


def test_a_picture_draws_the_same_in_any_batch_and_order() -> None:
    indices = torch.arange(50)
    whole = uniform(1, 2, indices, "mask", 4)
    shuffled = torch.randperm(50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(whole[shuffled], uniform(1, 2, shuffled, "mask", 4))
    assert torch.equal(whole[7:8], uniform(1, 2, indices[7:8], "mask", 4))
    assert torch.equal(whole, uniform(1, 2, indices, "mask", 9)[:, :4])


def test_draws_are_uniform_in_0_to_1() -> None:
    draws = uniform(5, 0, torch.arange(20_000), "crop", 10).double().numpy().ravel()
    assert draws.min() >= 0
    assert draws.max() < 1
    assert stats.kstest(draws, "uniform").pvalue > 1e-3
    assert stats.chisquare(np.histogram(draws, bins=1000, range=(0, 1))[0]).pvalue > 1e-3
    lowest_bits = (draws * 2**24).astype(np.int64) % 256
    assert stats.chisquare(np.bincount(lowest_bits, minlength=256)).pvalue > 1e-3


@pytest.mark.parametrize("neighbour", ["index", "step", "column", "purpose", "seed"])
def test_neighbouring_draws_are_unrelated(neighbour: str) -> None:
    n = 50_000
    indices = torch.arange(n)
    here = uniform(0, 8, indices, "view 1", 1)[:, 0]
    there = {
        "index": uniform(0, 8, indices + 1, "view 1", 1)[:, 0],
        "step": uniform(0, 9, indices, "view 1", 1)[:, 0],
        "column": uniform(0, 8, indices, "view 1", 2)[:, 1],
        "purpose": uniform(0, 8, indices, "view 2", 1)[:, 0],
        "seed": uniform(1, 8, indices, "view 1", 1)[:, 0],
    }[neighbour]
    assert stats.pearsonr(here.numpy(), there.numpy()).pvalue > 1e-3
    # Correlation sees only lines; a 16 x 16 table of joint counts sees any other relation.
    table, _, _ = np.histogram2d(here.numpy(), there.numpy(), bins=16, range=[[0, 1], [0, 1]])
    assert stats.chisquare(table.ravel()).pvalue > 1e-3


def test_successive_steps_of_one_picture_are_uniform() -> None:
    draws = torch.cat([uniform(0, step, torch.tensor([3]), "crop", 1) for step in range(5000)])
    assert stats.kstest(draws.double().numpy().ravel(), "uniform").pvalue > 1e-3
    assert len(draws.unique()) > 4990


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_draws_the_same_bits() -> None:
    indices = torch.arange(1000)
    on_gpu = uniform(4, 5, indices.cuda(), "crop", 25)
    assert torch.equal(uniform(4, 5, indices, "crop", 25), on_gpu.cpu())
