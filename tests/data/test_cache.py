"""The cache against the source it was made from, and against everything that may interrupt it."""

import os
import resource
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from cache_tools import build, fill, start_builder
from PIL import Image

from wessl.data.batch import Batch
from wessl.data.cache.build import build_cache
from wessl.data.sources.open import open_source
from wessl.errors import UserError

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.fixture
def pictures(tmp_path):
    return fill(tmp_path / "pictures", 12)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("sizes", [(20, 40), (24, 24)], ids=["mixed sizes", "one size"])
def test_a_batch_holds_each_picture_and_zeros_around_it(tmp_path, sizes, channels, device):
    source = open_source(fill(tmp_path / "pictures", 12, sizes, channels))
    cache = build_cache(source, 22, tmp_path / "cache").to(device)
    assert cache.uniform == (sizes == (24, 24))
    indices = torch.tensor([11, 3, 3, 0, 7])
    batch = cache.batch(indices)
    expected = Batch.collate([source.read(i, short_side=22) for i in indices.tolist()])
    assert batch.pixels.device.type == device
    for name in ("pixels", "heights", "widths"):
        assert torch.equal(getattr(batch, name).cpu(), getattr(expected, name))
    for i, index in enumerate(indices.tolist()):
        height, width = batch.heights[i], batch.widths[i]
        alone = torch.from_numpy(source.read(index, short_side=22).copy())
        assert torch.equal(batch.pixels[i, :height, :width].cpu(), alone)


def test_reading_a_batch_never_changes_the_cache(pictures, tmp_path):
    cache = build(pictures, tmp_path / "cache")
    first = cache.batch(torch.arange(12))
    first.pixels.zero_()
    assert cache.batch(torch.arange(12)).pixels.any()


def test_labels_names_and_numbers_follow_the_pictures_that_are_kept(pictures, tmp_path):
    source = open_source(pictures)
    for broken in (0, 5):
        path = Path(source.file(broken))
        path.write_bytes(path.read_bytes()[:60])
    cache = build(pictures, tmp_path / "cache")
    kept = [i for i in range(12) if i not in (0, 5)]
    assert cache.source_index.tolist() == kept
    assert list(cache.names) == [source.name(i) for i in kept]
    assert cache.labels.tolist() == source.labels[kept].tolist()
    assert cache.classes == ["class0", "class1"]
    assert [name for name, _ in cache.skipped] == [source.name(0), source.name(5)]
    assert all(reason for _, reason in cache.skipped)
    last = cache.batch(torch.tensor([9])).pixels[0]
    assert torch.equal(last, torch.from_numpy(source.read(11).copy()))


def test_too_many_bad_pictures_stop_the_build_and_are_named(pictures, tmp_path):
    for name in ("class0/0000.png", "class1/0003.png"):
        (pictures / name).write_bytes(b"broken")
    for limit in (1, 0.1):
        with pytest.raises(UserError, match=r"(?s)2 of 12 pictures.*class0/0000.png.*class1/0003"):
            build(pictures, tmp_path / "cache", max_bad=limit)
    assert list((tmp_path / "cache").iterdir()) == []
    assert len(build(pictures, tmp_path / "cache", max_bad=2)) == 10
    with pytest.raises(UserError, match="2 of 12"):
        build(pictures, tmp_path / "cache", max_bad=1)


def test_a_count_of_bad_pictures_that_was_not_ended_is_told_as_such(pictures, tmp_path):
    for i in range(0, 8, 2):
        (pictures / f"class0/{i:04d}.png").write_bytes(b"broken")
    with pytest.raises(UserError, match=r"^at least 2 of 12 .* \(tried so far: \d\); the first"):
        build(pictures, tmp_path / "cache", max_bad=1)
    build(pictures, tmp_path / "cache", max_bad=4)
    with pytest.raises(
        UserError, match=r"^4 of 12 pictures cannot be decoded, .* allows; the first"
    ):
        build(pictures, tmp_path / "cache", max_bad=1)


def test_all_pictures_bad_is_an_error_whatever_the_limit(tmp_path):
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "only.png").touch()
    with pytest.raises(UserError, match="1 of 1 pictures cannot be decoded"):
        build(tmp_path / "pictures", tmp_path / "cache", max_bad=1.0)


def test_one_picture_and_five_channels_are_fine(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (1, 9, 7, 5), dtype=np.uint8)
    np.savez(tmp_path / "one.npz", images=images)
    cache = build(tmp_path / "one.npz", tmp_path / "cache")
    assert (len(cache), cache.channels, cache.labels) == (1, 5, None)
    assert np.array_equal(cache.batch(torch.tensor([0])).pixels.numpy(), images)


def test_mean_and_deviation_are_those_of_all_pixels(pictures, tmp_path):
    source = open_source(pictures)
    pixels = np.concatenate([source.read(i).reshape(-1, 3) for i in range(12)]) / 255
    mean, std = build(pictures, tmp_path / "cache").mean_std()
    assert np.allclose(mean, pixels.mean(0))
    assert np.allclose(std, pixels.std(0))


def test_it_is_built_once_and_again_when_a_file_or_the_size_changes(pictures, tmp_path):
    seen = []

    def decoded(short_side: int = 256) -> int:
        seen.clear()
        build(
            pictures,
            tmp_path / "cache",
            short_side=short_side,
            progress=lambda *at: seen.append(at),
        )
        return len(seen)

    assert decoded() == 12
    assert seen == [(i, 12) for i in range(1, 13)]
    assert decoded() == 0
    assert decoded(short_side=16) == 12
    assert decoded() == 0
    Image.new("RGB", (5, 6), "red").save(pictures / "class0" / "0000.png")
    assert decoded() == 12
    changed = build(pictures, tmp_path / "cache").batch(torch.tensor([0])).pixels
    assert torch.equal(changed, torch.tensor([255, 0, 0], dtype=torch.uint8).expand(1, 6, 5, 3))
    assert len(list((tmp_path / "cache").iterdir())) == 2  # the outdated one was replaced


def test_a_cut_pixel_file_is_built_again(pictures, tmp_path):
    cache = build(pictures, tmp_path / "cache")
    whole = cache.batch(torch.arange(12)).pixels.clone()
    os.truncate(cache.home / "pixels.bin", cache.nbytes - 1)
    assert torch.equal(build(pictures, tmp_path / "cache").batch(torch.arange(12)).pixels, whole)


def test_the_default_place_is_the_environments(pictures, tmp_path, monkeypatch):
    monkeypatch.setenv("WESSL_CACHE", str(tmp_path / "elsewhere"))
    assert build_cache(open_source(pictures)).home.parent == tmp_path / "elsewhere"


def test_a_full_disk_is_named_with_the_bytes_needed_and_leaves_nothing(pictures, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, hard))
    try:
        with pytest.raises(UserError, match=r"no room .*/cache: it needs about [\d,]+ bytes"):
            build(pictures, tmp_path / "cache")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list((tmp_path / "cache").iterdir()) == []


def test_of_two_processes_one_builds_and_the_other_waits(pictures, tmp_path):
    both = [start_builder(pictures, tmp_path / "cache", pause=0.1) for _ in range(2)]
    said = [process.communicate(timeout=60)[0].splitlines()[-1].split() for process in both]
    assert sorted(words[1] for words in said) == ["0", "12"]
    assert said[0][2:] == said[1][2:]
    assert len(list((tmp_path / "cache").iterdir())) == 1


def test_a_killed_build_is_never_taken_for_a_cache(pictures, tmp_path):
    builder = start_builder(pictures, tmp_path / "cache", pause=60)
    assert builder.stdout.readline() == "1\n"
    os.kill(builder.pid, signal.SIGKILL)
    builder.communicate()
    (left,) = (tmp_path / "cache").glob("*.part-*")
    cache = build(pictures, tmp_path / "cache")
    assert len(cache) == 12
    assert not left.exists()
    assert list((tmp_path / "cache").iterdir()) == [cache.home]


def test_worker_processes_build_the_same_cache(pictures, tmp_path):
    alone = build(pictures, tmp_path / "one", workers=0)
    together = build(pictures, tmp_path / "two", workers=2)
    assert torch.equal(alone.pixels, together.pixels)


def test_other_labels_of_the_same_pictures_are_not_taken_for_the_old_ones(tmp_path):
    for name in "ab":
        Image.new("L", (8, 8)).save(tmp_path / f"{name}.png")
    listed = tmp_path / "list.txt"
    found = []
    for labels in ((0, 1), (1, 0)):
        listed.write_text("".join(f"{n}.png\t{y}\n" for n, y in zip("ab", labels, strict=True)))
        found.append(build_cache(open_source(listed), directory=tmp_path / "kept").labels.tolist())
    assert found == [[0, 1], [1, 0]]
