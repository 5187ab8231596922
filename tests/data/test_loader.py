"""Order, resume and the three ways of getting a batch, which must agree."""

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from process_tools import alive, children, cpu_ticks, descendants
from torch import Tensor

from wessl.data.batch import Batch
from wessl.data.cache.build import build_cache
from wessl.data.cache.cache import PictureCache
from wessl.data.loading.loader import Loader, epoch_order
from wessl.data.sources.open import Source, open_source
from wessl.data.workers.many import decode_many
from wessl.errors import Failure, UserError

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
N, BATCH = 22, 4


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Source:
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for i in range(N):
        pixels = rng.integers(0, 256, (10 + i, 30 - i // 2, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:02d}.png")
    return open_source(folder)


@pytest.fixture(scope="module")
def cache(source, tmp_path_factory) -> PictureCache:
    return build_cache(source, 16, tmp_path_factory.mktemp("cache"))


def take(loader: Loader, count: int, start: int = 0) -> list[tuple[Tensor, Batch]]:
    batches = loader.batches(start)
    taken = list(islice(batches, count))
    batches.close()
    return taken


def same(some: list[tuple[Tensor, Batch]], others: list[tuple[Tensor, Batch]]) -> bool:
    return len(some) == len(others) and all(
        torch.equal(i, j)
        and all(torch.equal(getattr(a, part).cpu(), getattr(b, part).cpu()) for part in vars(a))
        for (i, a), (j, b) in zip(some, others, strict=True)
    )


def test_an_epochs_order_is_a_permutation_fixed_by_seed_and_epoch():
    order = epoch_order(seed=1, epoch=2, n=100)
    assert order.dtype == torch.int64
    assert order.sort().values.tolist() == list(range(100))
    assert torch.equal(order, epoch_order(1, 2, 100))
    for seed, epoch in ((2, 1), (1, 3), (3, 2)):
        assert not torch.equal(order, epoch_order(seed, epoch, 100))


def test_an_epoch_visits_its_order_and_drops_the_incomplete_batch(cache):
    loader = Loader(cache, BATCH, seed=5)
    assert loader.steps_per_epoch == 5
    seen = torch.cat([indices for indices, _ in take(loader, 10)])
    expected = [epoch_order(5, epoch, N)[: 5 * BATCH] for epoch in (0, 1)]
    assert torch.equal(seen, torch.cat(expected))


def test_any_step_can_be_the_first(cache):
    whole = take(Loader(cache, BATCH), 12)
    for start in (0, 3, 5, 7):
        assert same(take(Loader(cache, BATCH), 12 - start, start), whole[start:])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("workers", [0, 2])
def test_device_host_and_stream_give_the_same_batches(source, cache, device, workers):
    resident = Loader(cache, BATCH, 3, device, residency="device")
    hosted = Loader(cache, BATCH, 3, device, residency="host")
    streamed = Loader(source, BATCH, 3, device, short_side=16, workers=workers)
    expected = take(resident, 8, start=2)
    assert {batch.pixels.device.type for _, batch in expected} == {device}
    assert same(take(hosted, 8, start=2), expected)
    assert same(take(streamed, 8, start=2), expected)


def test_residency_follows_the_memory_allowed(source, cache):
    assert Loader(cache, BATCH).residency == "device"
    assert Loader(cache, BATCH, share=1e-12).residency == "host"
    assert Loader(source, BATCH).residency == "stream"
    with pytest.raises(UserError, match="can only be streamed"):
        Loader(source, BATCH, residency="host")


def test_a_batch_larger_than_the_data_is_refused_with_both_numbers(cache):
    with pytest.raises(UserError, match="a batch of 23 cannot be drawn from 22 pictures"):
        Loader(cache, 23)


def test_a_bad_picture_is_replaced_by_the_next_good_one_and_named(source, tmp_path):
    for i in range(N):
        (tmp_path / source.name(i)).write_bytes(Path(source.file(i)).read_bytes())
    for broken in (6, 7, N - 1):
        (tmp_path / source.name(broken)).write_bytes(b"broken")
    loader = Loader(open_source(tmp_path), N, short_side=16)
    ((indices, batch),) = take(loader, 1)
    stands_for = {6: 8, 7: 8, N - 1: 0}
    order = epoch_order(0, 0, N).tolist()
    assert indices.tolist() == [stands_for.get(i, i) for i in order]
    expected = Batch.collate([source.read(i, short_side=16) for i in indices.tolist()])
    assert torch.equal(batch.pixels, expected.pixels)
    assert sorted(name for name, _ in loader.skipped) == ["06.png", "07.png", "21.png"]
    with pytest.raises(UserError, match="more than --max-bad 2"):
        take(Loader(open_source(tmp_path), N, short_side=16, max_bad=2), 1)


def test_waiting_for_data_is_measured(source):
    class Slow(type(source)):
        def read(self, index, short_side=None):
            time.sleep(0.02)
            return super().read(index, short_side)

    slow = Slow(source.location, source.root, source.names, 3)
    loader = Loader(slow, BATCH, workers=0)
    began = time.perf_counter()
    take(loader, 3)
    assert 3 * BATCH * 0.02 <= loader.wait <= time.perf_counter() - began
    busy = Loader(slow, BATCH, workers=0)
    batches = busy.batches()
    next(batches)
    waits = []
    for _ in range(3):
        time.sleep(0.3)  # longer than a batch takes: it is ready when asked for
        before, asked = busy.wait, time.perf_counter()
        next(batches)
        waits.append(busy.wait - before)
        assert waits[-1] <= time.perf_counter() - asked
    assert sum(waits) < 3 * BATCH * 0.02
    assert min(waits) < 0.03
    batches.close()


STREAMER = """
import sys
from wessl.data.loading.loader import Loader
from wessl.data.sources.open import open_source
batches = Loader(open_source(sys.argv[1]), 4, workers=2).batches()
next(batches)
print("going", flush=True)
sys.stdin.read()
"""


def test_workers_die_with_a_killed_parent(source):
    command = [sys.executable, "-c", STREAMER, source.location]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "going\n"
    workers = descendants(parent.pid)
    assert len(workers) == (
        3 if sys.platform == "linux" else 2
    )  # there one of them forks the others
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    deadline = time.monotonic() + 10
    while any(alive(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(alive(pid) for pid in workers)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_a_worker_killed_while_it_hands_over_pictures_is_told_in_words(tmp_path):
    for i in range(24):  # too wide for shared memory: more goes through the pipe than it holds
        Image.new("RGB", (256, 64), (i, 0, 0)).save(tmp_path / f"{i:02}.png")
    decoded = decode_many(open_source(tmp_path), range(24), short_side=64, workers=1)
    known = children(os.getpid())
    next(decoded)
    (worker,) = children(os.getpid()) - known
    spent = -1
    while (now := cpu_ticks(worker)) != spent:  # it waits for room in the pipe
        spent = now
        time.sleep(0.3)
    os.kill(worker, signal.SIGKILL)
    with closing(decoded), pytest.raises(Failure, match="decodes pictures ended with code -9"):
        list(decoded)
