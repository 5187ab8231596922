"""JPEGs decoded in batches, against Pillow: all steps but nvJPEG itself run on the CPU too."""

import io
import sys
import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from shard_tools import tar
from torch import Tensor

from wessl.data.cache.build import build_cache, find_cache
from wessl.data.decoding.bad_pictures import BadPicture
from wessl.data.gpu_jpeg.many import decode_with
from wessl.data.gpu_jpeg.nvjpeg import NvJpeg
from wessl.data.loading.loader import Loader
from wessl.data.pictures import choose_decode, open_pictures
from wessl.data.sources.files import FileSource
from wessl.data.sources.open import Subset, open_source
from wessl.data.workers.many import decode_many
from wessl.errors import Lost, UserError

N = 150
CUT, GONE, ODD, EMPTY = 17, 41, 77, 100
"""Numbers of a truncated file, one that is not there, text with a JPEG's name, an empty one."""


class PillowJpegs:
    """As nvJPEG: a list of files in, RGB out, not turned, and all fail with any of them."""

    name, device = "pillow", torch.device("cpu")

    def __init__(self) -> None:
        self.batches: list[int] = []

    def __call__(self, files: list[bytes]) -> list[Tensor]:
        self.batches.append(len(files))
        try:
            images = [Image.open(io.BytesIO(file)).convert("RGB") for file in files]
        except OSError as error:
            raise RuntimeError(f"Error while decoding JPEG images: {error}") from error
        return [torch.from_numpy(np.array(image)).permute(2, 0, 1) for image in images]


def picture(rng: np.random.Generator, height: int, width: int, channels: int = 3) -> Image.Image:
    """Smooth, so that a JPEG of it is like it, with some noise."""
    coarse = rng.integers(0, 256, (6, 8, channels), dtype=np.uint8)
    smooth = Image.fromarray(coarse.squeeze()).resize((width, height), Image.Resampling.BICUBIC)
    noise = rng.normal(0, 4, np.asarray(smooth).shape)
    return Image.fromarray((np.asarray(smooth) + noise).clip(0, 255).astype(np.uint8))


def save(image: Image.Image, path: Path, orientation: int | None = None, **options: object) -> None:
    if orientation is not None:
        exif = Image.Exif()
        exif[0x0112] = orientation
        options["exif"] = exif
    image.save(path, "JPEG", **{"quality": 92, **options})


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Sizes that come often and seldom, all orientations, grey, CMYK, progressive, PNG, broken."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for i in range(N):
        size = (50, 70) if i % 3 else (30 + i % 25, 40 + i % 17)
        path = folder / f"{i:03d}.jpg"
        if i % 10 == 3:
            save(picture(rng, *size, 1), path)
        elif i % 10 == 5:
            picture(rng, *size).save(path, "PNG")
        elif i % 10 == 6:
            save(picture(rng, *size), path, orientation=1 + i // 10 % 8)
        elif i % 20 == 8:
            save(picture(rng, *size).convert("CMYK"), path)
        elif i % 20 == 9:
            save(picture(rng, *size), path, progressive=True)
        elif i % 20 == 12:
            save(picture(rng, *size), path, subsampling=0, keep_rgb=True)
        else:
            save(picture(rng, *size), path)
    whole = (folder / f"{CUT:03d}.jpg").read_bytes()
    (folder / f"{CUT:03d}.jpg").write_bytes(whole[: len(whole) // 2])
    (folder / f"{ODD:03d}.jpg").write_text("no picture at all")
    (folder / f"{EMPTY:03d}.jpg").write_bytes(b"")
    return folder


@pytest.fixture
def source(folder):
    opened = open_source(folder, channels=3)
    gone, kept = folder / f"{GONE:03d}.jpg", folder.parent / "kept.jpg"
    gone.rename(kept)
    yield opened
    kept.rename(gone)


def compare(found, expected, most: float) -> None:
    assert [number for number, _ in found] == [number for number, _ in expected]
    for (number, ours), (_, theirs) in zip(found, expected, strict=True):
        if isinstance(theirs, BadPicture):
            assert (number, type(ours), str(ours)) == (number, type(theirs), str(theirs))
        else:
            assert ours.shape == theirs.shape
            assert ours.dtype == np.uint8
            assert np.abs(ours.astype(int) - theirs).max() <= most, number


@pytest.mark.parametrize("short_side", [24, None])
def test_pictures_come_in_order_as_decode_many_has_them_and_broken_ones_in_its_words(
    source, short_side
):
    order = np.random.default_rng(1).permutation(N).tolist()
    jpeg = PillowJpegs()
    found = list(decode_with(jpeg, source, order, short_side, 3))
    expected = list(decode_many(source, order, short_side, 0))
    assert {n for n, p in expected if isinstance(p, BadPicture)} == {CUT, GONE, ODD, EMPTY}
    compare(found, expected, 0 if short_side is None else 2)
    assert sum(jpeg.batches) > 0.7 * N


@pytest.mark.parametrize("orientation", [*range(1, 9), 0, 9])
def test_a_picture_comes_upright_whatever_its_exif_says(tmp_path, orientation):
    save(picture(np.random.default_rng(2), 40, 64), tmp_path / "a.jpg", orientation)
    source, jpeg = open_source(tmp_path), PillowJpegs()
    compare(list(decode_with(jpeg, source, [0], None)), list(decode_many(source, [0], None)), 0)
    compare(list(decode_with(jpeg, source, [0], 20)), list(decode_many(source, [0], 20)), 2)
    assert jpeg.batches == [1, 1]


def test_large_pictures_panoramas_and_tiny_ones_have_the_sizes_that_pillow_gives_them(tmp_path):
    rng = np.random.default_rng(3)
    sizes = [
        (301, 407),
        (177, 90),
        (33, 400),
        (401, 37),
        (10, 12),
        (16, 16),
        (1100, 1300),
        (129, 5),
    ]
    for i, size in enumerate(sizes):
        save(picture(rng, *size), tmp_path / f"{i}.jpg", orientation=6 if i == 1 else None)
    source, jpeg = open_source(tmp_path), PillowJpegs()
    found = dict(decode_with(jpeg, source, range(len(sizes)), 16))
    assert sum(jpeg.batches) == len(sizes) - 1, "one is more than 64 times too large"
    for number, expected in decode_many(source, range(len(sizes)), 16, 0):
        assert found[number].shape == expected.shape
        apart = found[number].astype(float) - expected
        assert np.sqrt((apart**2).mean()) < 4, "libjpeg reduces by other means than averages"


def test_what_lies_after_a_picture_or_in_its_header_is_not_taken_for_its_end(tmp_path):
    rng = np.random.default_rng(5)
    thumbnail = io.BytesIO()
    picture(rng, 20, 30).save(thumbnail, "JPEG")
    save(picture(rng, 50, 70), tmp_path / "a.jpg", comment=thumbnail.getvalue())
    whole = (tmp_path / "a.jpg").read_bytes()
    (tmp_path / "b.jpg").write_bytes(whole + b"what a camera adds" * 20)
    (tmp_path / "c.jpg").write_bytes(whole[:-20])
    pair = [picture(rng, 50, 70), picture(rng, 50, 70)]
    pair[0].save(tmp_path / "d.jpg", "MPO", save_all=True, append_images=pair[1:])
    both = (tmp_path / "d.jpg").read_bytes()
    (tmp_path / "e.jpg").write_bytes(both[: len(both) // 4])
    source, jpeg = open_source(tmp_path), PillowJpegs()
    expected = list(decode_many(source, range(5), None))
    compare(list(decode_with(jpeg, source, range(5), None)), expected, 0)
    assert [number for number, one in expected if isinstance(one, BadPicture)] == [2, 4]
    assert sum(jpeg.batches) == 3


def test_when_a_batch_fails_only_the_picture_that_fails_goes_to_pillow(tmp_path):
    rng = np.random.default_rng(4)
    for i in range(12):
        save(picture(rng, 30, 40), tmp_path / f"{i:02d}.jpg")

    class Picky(PillowJpegs):
        def __call__(self, files: list[bytes]) -> list[Tensor]:
            if (tmp_path / "05.jpg").read_bytes() in files:
                self.batches.append(-len(files))
                raise RuntimeError("not this one")
            return super().__call__(files)

    source, jpeg = open_source(tmp_path), Picky()
    compare(
        list(decode_with(jpeg, source, range(12), 16)), list(decode_many(source, range(12), 16)), 2
    )
    assert sorted(jpeg.batches) == [-12, -1, *([1] * 12)], "eleven, and a sound one to be sure"


def test_a_decoder_that_fails_at_everything_ends_it_in_words(source):
    class Broken(PillowJpegs):
        def __call__(self, files: list[bytes]) -> list[Tensor]:
            raise RuntimeError("illegal memory access")

    with pytest.raises(Lost, match=r"does not decode JPEGs any more \(illegal memory access"):
        list(decode_with(Broken(), source, range(N), 16))


def test_a_reader_that_stops_early_leaves_no_thread(source):
    before = set(threading.enumerate())
    endless = (i % N for i in range(10**9))
    with closing(decode_with(PillowJpegs(), source, endless, 16, 3)) as decoded:
        next(decoded)
        assert len(set(threading.enumerate()) - before) == 4
    assert set(threading.enumerate()) == before


def test_a_fault_of_ours_is_not_taken_for_a_broken_picture_and_leaves_no_thread_either(folder):
    class Faulty(FileSource):
        def encoded(self, index: int) -> bytes:
            return super().encoded(index) if index != 50 else bytes(1 // 0)

    source, before = open_source(folder, channels=3), set(threading.enumerate())
    faulty = Faulty(source.location, source.root, source.names, 3)
    with pytest.raises(ZeroDivisionError):
        list(decode_with(PillowJpegs(), faulty, range(N), 16, 3))
    assert set(threading.enumerate()) == before


def test_shards_and_subsets_give_their_files_and_other_sources_are_left_to_decode_many(
    folder, tmp_path
):
    files = [(folder / f"{i:03d}.jpg").read_bytes() for i in range(12)]
    tar(tmp_path / "shard.tar", [(f"{i:03d}.jpg", file) for i, file in enumerate(files)])
    shards = open_source(tmp_path / "shard.tar", channels=3, directory=tmp_path)
    for source in (shards, Subset(shards, [3, 0, 7, 7])):
        every, jpeg = range(len(source)), PillowJpegs()
        compare(list(decode_with(jpeg, source, every, 24)), list(decode_many(source, every, 24)), 2)
        assert sum(jpeg.batches) >= 4
    for source in (open_source("builtin://digits"), open_source(folder, channels=1)):
        jpeg = PillowJpegs()
        compare(
            list(decode_with(jpeg, source, [5, 3], 24)), list(decode_many(source, [5, 3], 24)), 0
        )
        assert not jpeg.batches


def test_no_file_is_read_twice_but_to_say_what_is_wrong_with_it(source, monkeypatch):
    assert source.pixel_format.channels == 3  # for which it looks at some of them
    asked, plain = [], source.file
    monkeypatch.setattr(source, "file", lambda index: asked.append(index) or plain(index))
    found = dict(decode_with(PillowJpegs(), source, range(1, N), 24))
    broken = [index for index, one in found.items() if isinstance(one, BadPicture)]
    assert {CUT, GONE, ODD, EMPTY} == set(broken)
    assert sorted(set(asked) - {0}) == list(range(1, N))  # the first tells that it has files
    again = [index for index in range(1, N) if asked.count(index) > 1]
    assert set(again) <= set(broken)


def test_a_cache_remembers_who_decoded_it(folder, tmp_path):
    source, jpeg = open_source(folder, channels=3), PillowJpegs()
    plain = build_cache(source, 24, tmp_path)
    assert find_cache(source, 24, tmp_path, jpeg.name) is None
    assert choose_decode(source, 24, tmp_path, jpeg)[1] != choose_decode(source, 24, tmp_path)[1]
    other = build_cache(source, 24, tmp_path, jpeg=jpeg)
    assert other.home != plain.home
    assert find_cache(source, 24, tmp_path).home == plain.home
    assert find_cache(source, 24, tmp_path, jpeg.name).home == other.home
    assert torch.equal(other.source_index, plain.source_index)
    assert other.skipped == plain.skipped
    decoded = len(jpeg.batches)
    build_cache(source, 24, tmp_path, jpeg=jpeg)
    assert len(jpeg.batches) == decoded


def test_cache_and_stream_agree_and_so_does_what_a_run_knows_its_pictures_by(folder, tmp_path):
    source = open_source(folder, channels=3)
    once = open_pictures(source, 24, "once", tmp_path, jpeg=PillowJpegs())
    stream = open_pictures(source, 24, "stream", tmp_path, jpeg=PillowJpegs())
    plain = open_pictures(source, 24, "once", tmp_path)
    assert once.sample_digest() == stream.sample_digest() == plain.sample_digest()
    batches = [
        Loader(pictures, 50, short_side=24, workers=2, jpeg=jpeg).batches()
        for pictures, jpeg in ((once.cache, None), (source, PillowJpegs()))
    ]
    for _ in range(3):
        (i, a), (j, b) = (next(made) for made in batches)
        assert torch.equal(i, j)
        assert all(torch.equal(getattr(a, part), getattr(b, part)) for part in vars(a))
    for made in batches:
        made.close()


def test_without_a_gpu_or_torchvision_the_flag_says_what_to_do(monkeypatch):
    if not torch.cuda.is_available():
        for device in ("cpu", "cuda"):
            with pytest.raises(UserError, match="--jpeg gpu: no GPU was found; leave --jpeg out"):
                NvJpeg(device)
        return
    with pytest.raises(
        UserError, match="--jpeg gpu: cpu is no GPU; use --device cuda, or --jpeg cpu"
    ):
        NvJpeg("cpu")
    monkeypatch.setitem(sys.modules, "torchvision.io", None)  # how Python marks what is not there
    with pytest.raises(UserError, match=r"--jpeg gpu needs torchvision .*pip install torchvision"):
        NvJpeg("cuda")


@pytest.mark.parametrize(("subsampling", "most"), [(0, 0.75), (2, 4.0)])
def test_nvjpeg_differs_from_pillow_by_rounding_and_by_colours_blown_up(
    tmp_path, subsampling, most
):
    if not torch.cuda.is_available():
        pytest.skip("needs CUDA")
    pytest.importorskip("torchvision")
    rng = np.random.default_rng(1)
    for i in range(40):
        save(picture(rng, 120, 160), tmp_path / f"{i:02d}.jpg", subsampling=subsampling)
    source = open_source(tmp_path, channels=3)
    for side in (64, None):
        expected = dict(decode_many(source, range(40), side, 0))
        found = dict(decode_with(NvJpeg("cuda"), source, range(40), side))
        apart = [np.abs(found[i].astype(int) - expected[i]).mean() for i in range(40)]
        assert np.mean(apart) < most


def test_nvjpeg_leaves_what_is_broken_to_pillow(source):
    if not torch.cuda.is_available():
        pytest.skip("needs CUDA")
    pytest.importorskip("torchvision")
    expected = dict(decode_many(source, range(N), 24, 0))
    for number, found in decode_with(NvJpeg("cuda"), source, range(N), 24):
        theirs = expected[number]
        if isinstance(theirs, BadPicture):
            assert str(found) == str(theirs)
        else:
            assert found.shape == theirs.shape
