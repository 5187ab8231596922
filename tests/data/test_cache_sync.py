"""A cache that is used before the disk has it, and all that may happen until then."""

import errno
import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from cache_tools import build, fill, start_builder

from wessl.data.cache import writer as cache_writer
from wessl.data.cache.cache import PictureCache
from wessl.data.cache.sync import MARK, wait_for_disk
from wessl.data.sole_builder import sole_builder

BOOT = Path("/proc/sys/kernel/random/boot_id")

pytestmark = pytest.mark.skipif(not BOOT.exists(), reason="without a boot id all wait for the disk")


@pytest.fixture
def pictures(tmp_path):
    return fill(tmp_path / "pictures", 12)


@pytest.fixture
def large(pictures, tmp_path, monkeypatch) -> PictureCache:
    """A cache that counts as large, and is not on the disk yet as far as its mark tells."""
    monkeypatch.setattr(cache_writer, "SMALL", 0)
    cache = build(pictures, tmp_path / "cache")
    wait_for_disk()
    left = sorted(path.name for path in cache.home.iterdir())
    assert MARK not in left
    assert list(cache.home.parent.iterdir()) == [cache.home]
    (cache.home / MARK).write_text(BOOT.read_text().strip())
    return cache


def decoded(pictures: Path, directory: Path) -> int:
    seen = []
    build(pictures, directory, progress=lambda *at: seen.append(at))
    return len(seen)


def test_a_process_that_exits_leaves_a_cache_without_mark_or_lock(pictures, tmp_path):
    said, _ = start_builder(pictures, tmp_path / "cache", small=0).communicate(timeout=60)
    assert said.splitlines()[-1].startswith("decoded 12 holds 12")
    (home,) = (tmp_path / "cache").iterdir()
    assert not (home / MARK).exists()
    assert decoded(pictures, tmp_path / "cache") == 0


def test_a_marked_cache_is_taken_and_brought_to_the_disk_by_whoever_opens_it(large, pictures):
    assert decoded(pictures, large.home.parent) == 0
    wait_for_disk()
    assert not (large.home / MARK).exists()
    assert list(large.home.parent.iterdir()) == [large.home]


def test_a_cache_marked_before_the_machine_went_down_is_built_again(large, pictures):
    (large.home / MARK).write_text("00000000-0000-0000-0000-000000000000")
    pixels = large.pixels.clone()
    (large.home / "pixels.bin").write_bytes(bytes(large.nbytes))  # as a power cut leaves it
    assert decoded(pictures, large.home.parent) == 12
    assert torch.equal(build(pictures, large.home.parent).pixels, pixels)
    wait_for_disk()


def test_nobody_waits_for_a_process_that_only_waits_for_the_disk(large, pictures, tmp_path):
    away = tmp_path / "away"
    shutil.move(large.home, away)
    with ThreadPoolExecutor() as pool, sole_builder(large.home):
        other = pool.submit(decoded, pictures, large.home.parent)
        with pytest.raises(TimeoutError):
            other.result(0.5)
        shutil.move(away, large.home)  # built, while its builder still holds the lock
        assert other.result(60) == 0
    wait_for_disk()
    assert list(large.home.parent.iterdir()) == [large.home]


def test_a_cache_that_does_not_get_to_the_disk_serves_once_and_says_so(large, pictures):
    def opened() -> PictureCache:
        cache = build(pictures, large.home.parent)
        wait_for_disk()
        return cache

    (large.home / "loop").symlink_to("loop")  # cannot be opened, so not synced either
    with pytest.warns(UserWarning, match="did not get to the disk .*the next one decodes again"):
        cache = opened()
    assert cache.batch(torch.arange(12)).pixels.any()
    os.unlink(large.home / "loop")
    assert decoded(pictures, large.home.parent) == 12
    wait_for_disk()


def test_where_folders_cannot_be_synced_files_are(pictures, tmp_path, monkeypatch):
    def fsync(descriptor: int, plain=os.fsync) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):  # as some network file systems answer
            raise OSError(errno.EINVAL, "Invalid argument")
        plain(descriptor)

    monkeypatch.setattr(cache_writer, "SMALL", 0)
    monkeypatch.setattr(os, "fsync", fsync)
    cache = build(pictures, tmp_path / "cache")
    wait_for_disk()
    assert not (cache.home / MARK).exists()
    assert decoded(pictures, tmp_path / "cache") == 0


def test_who_only_reads_a_marked_cache_does_not_wait_for_its_builder(large, pictures):
    with sole_builder(large.home):
        assert decoded(pictures, large.home.parent) == 0
        wait_for_disk()
        assert (large.home / MARK).exists()
