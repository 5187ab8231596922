"""Streams over several processes and workers: each picture once an epoch, also after kills."""

import os
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from shard_tools import numbered_shards

from wessl.data.loading.loader import Loader
from wessl.data.sources.open import open_source
from wessl.data.workers.many import decode_many

BATCH, WORLD, WORKERS = 12, 3, 2
COUNTS = (50, 3, 61, 30)
N = sum(COUNTS)  # 144: twelve whole batches

STREAMER = """
import sys
from wessl.data.loading.loader import Loader
from wessl.data.sources.open import open_source
data, rank, start, stop = sys.argv[1], *map(int, sys.argv[2:])
loader = Loader(open_source(data), 12, seed=7, part=(rank, 3), workers=2, short_side=None)
batches = loader.batches(start)
for step in range(start, stop):
    indices, batch = next(batches)
    told = [int(p[0, 0, 0]) + 256 * int(p[0, 0, 1]) for p in batch.pixels]
    assert told == indices.tolist()
    print(step, *told, flush=True)
batches.close()
"""


@pytest.fixture(scope="module")
def shards(tmp_path_factory) -> Path:
    return numbered_shards(tmp_path_factory.mktemp("shards"), COUNTS)


def stream(shards: Path, start: int, stop: int, kill_after: int | None) -> dict[int, list[int]]:
    """Numbers seen by three processes at each step; each is killed after so many if asked for."""
    data = str(shards / "shard-*.tar")
    crew = [
        subprocess.Popen(
            [sys.executable, "-c", STREAMER, data, str(rank), str(start), str(stop)],
            stdout=subprocess.PIPE, text=True,
        )
        for rank in range(WORLD)
    ]  # fmt: skip
    seen: dict[int, list[int]] = {}
    for rank, process in enumerate(crew):
        for count, line in enumerate(process.stdout, 1):
            step, *numbers = map(int, line.split())
            seen.setdefault(step, []).extend(numbers)
            if count == kill_after:
                os.kill(process.pid, signal.SIGKILL)
                break
        process.communicate()
        assert process.returncode == (0 if kill_after is None else -9), rank
    return seen


def test_three_processes_of_two_workers_see_each_picture_once_an_epoch_through_a_kill(shards):
    before = stream(shards, 0, 1000, kill_after=17)  # in the second epoch, and inside a shard
    assert sorted(before) == list(range(17))
    after = stream(shards, 17, 24, kill_after=None)
    steps = before | after
    assert all(len(numbers) == BATCH for numbers in steps.values())
    for epoch in range(2):
        seen = Counter(n for step in range(12 * epoch, 12 * epoch + 12) for n in steps[step])
        assert seen == Counter(range(N))
    alone = Loader(open_source(shards), BATCH, seed=7, workers=0, short_side=None)
    with closing(alone.batches()) as batches:
        for step, (indices, _) in zip(range(24), batches):  # noqa: B905
            assert steps[step] == indices.tolist()


@pytest.mark.parametrize("world", [2, 3, 4])
def test_the_parts_of_a_batch_are_its_slices_for_files_too(tmp_path, world):
    for i in range(30):
        Image.fromarray(np.full((4, 5, 3), i, np.uint8)).save(tmp_path / f"{i:02}.png")
    source = open_source(tmp_path)

    def batches(part: tuple[int, int]) -> list[torch.Tensor]:
        loader = Loader(source, 12, seed=1, part=part, workers=0)
        with closing(loader.batches(1)) as made:
            return [indices for indices, _ in islice(made, 5)]

    parts = zip(*(batches((rank, world)) for rank in range(world)), strict=True)
    for whole, some in zip(batches((0, 1)), parts, strict=True):
        assert torch.equal(torch.cat(some), whole)


def test_pictures_that_find_no_room_in_shared_memory_come_all_the_same(tmp_path):
    rng = np.random.default_rng(0)
    shapes = [(9, 9), (2000, 1500), (5, 7), (1800, 1700), (2000, 1500), (3, 3), (2500, 1400)]
    for i, (height, width) in enumerate(shapes):
        noise = rng.integers(0, 256, (height // 10 + 1, width // 10 + 1, 3), dtype=np.uint8)
        large = Image.fromarray(noise).resize((width, height), Image.Resampling.NEAREST)
        large.save(tmp_path / f"{i}.png", compress_level=1)
    source = open_source(tmp_path)
    found = list(decode_many(source, range(len(source)), None, workers=1))
    assert [pixels.shape[:2] for _, pixels in found] == shapes
    assert all(np.array_equal(pixels, source.read(i)) for i, pixels in found)


def test_pictures_may_be_kept_while_others_come(shards):
    source = open_source(shards)
    kept = list(decode_many(source, range(N), None, workers=2))
    assert [int(p[0, 0, 0]) for _, p in kept] == list(range(N))
    kept[0][1][:] = 0  # they are the reader's own
