"""Worker processes: what they hand over, what they load, and how the end of one is told."""

import gc
import os
import signal
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from process_tools import alive, children, descendants

from wessl.data.decoding.bad_pictures import BadPicture
from wessl.data.sources.files import FileSource
from wessl.data.sources.open import open_source
from wessl.data.workers.many import decode_many
from wessl.errors import Failure

N = 100

linux = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Pictures of many sizes; one is broken, some are too long for the memory that is shared."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for i in range(N):
        width = 300 if i % 10 == 0 else 8 + i % 40
        pixels = rng.integers(0, 256, (8 + i % 25, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{i:03d}.png")
    (folder / "041.png").write_bytes(b"broken")
    return folder


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("workers", [1, 3])
def test_every_picture_comes_in_order_as_the_source_reads_it(folder, workers, keep):
    source = open_source(folder)
    order = np.random.default_rng(1).permutation(N).tolist()
    seen = []
    for number, picture in decode_many(source, order, 16, workers, keep=keep):
        seen.append(number)
        if number == 41:
            assert isinstance(picture, BadPicture)
            assert str(picture) == "no picture that Pillow knows"
        else:
            assert np.array_equal(picture, source.read(number, 16))
    assert seen == order


def test_pictures_that_are_kept_stay_as_they_were(folder):
    source = open_source(folder)
    kept = dict(decode_many(source, range(N), 16, 2))
    assert all(np.array_equal(kept[i], source.read(i, 16)) for i in range(N) if i != 41)


@linux
def test_workers_that_shrink_nothing_load_no_torch(tmp_path):
    for i in range(40):
        Image.new("RGB", (9, 9)).save(tmp_path / f"{i}.png")
    with closing(decode_many(open_source(tmp_path), range(40), 16, 2)) as decoded:
        known = descendants(os.getpid())
        next(decoded)
        maps = [Path(f"/proc/{pid}/maps").read_text() for pid in descendants(os.getpid()) - known]
    assert len(maps) == 3
    assert not any("libtorch" in loaded for loaded in maps)


@linux
def test_one_of_several_workers_that_is_killed_is_told_in_words(folder):
    decoded = decode_many(open_source(folder), (i % N for i in range(100_000)), None, 2)
    known = children(os.getpid())
    next(decoded)
    (first,) = children(os.getpid()) - known
    victim, other = children(first)
    os.kill(victim, signal.SIGKILL)
    with pytest.raises(Failure, match="decodes pictures ended with code -9"):
        list(decoded)
    assert not alive(first)
    assert not alive(other)


class Faulty(FileSource):
    def read(self, index: int, short_side: int | None = None) -> np.ndarray:
        if index == 50:
            raise ZeroDivisionError("a fault of ours, not the picture's")
        return super().read(index, short_side)


def test_a_fault_in_a_worker_ends_all_and_shows_where(folder, capfd):
    source = open_source(folder)
    faulty = Faulty(source.location, source.root, source.names, 3)
    with pytest.raises(Failure, match="ended with code 1;"):
        list(decode_many(faulty, range(N), None, 2))
    assert "a fault of ours, not the picture's" in capfd.readouterr().err


class Leaving(FileSource):
    def read(self, index: int, short_side: int | None = None) -> np.ndarray:
        if index == 50:
            os._exit(0)  # as a library may that thinks the program its own
        return super().read(index, short_side)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_worker_that_leaves_before_it_is_told_to_is_not_waited_for(folder, workers):
    source = open_source(folder)
    leaving = Leaving(source.location, source.root, source.names, 3)
    with pytest.raises(Failure, match="ended with code 0;"):
        list(decode_many(leaving, range(N), None, workers))


@linux
def test_readers_that_stop_early_leave_no_memory_and_no_descriptors_open(folder):
    def opened() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    gc.disable()  # what is left must not hang in a circle that only the collector sees
    try:
        with closing(decode_many(open_source(folder), range(N), 16, 2)) as decoded:
            next(decoded)
        before = opened()
        for _ in range(3):
            with closing(decode_many(open_source(folder), range(N), 16, 2)) as decoded:
                next(decoded)
        assert opened() == before
    finally:
        gc.enable()
