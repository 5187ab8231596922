"""Pictures from a cache and pictures decoded each time must be the same, in the same places."""

from itertools import islice

import numpy as np
import pytest
import torch
from PIL import Image

from wessl.data.decoding.bad_pictures import BadPicture
from wessl.data.loading.loader import Loader
from wessl.data.pictures import Pictures, choose_decode, open_pictures
from wessl.data.sources.arrays import digits
from wessl.data.sources.open import ArraySource, open_source
from wessl.errors import Failure, UserError

N, BROKEN = 20, (0, 7, 8, 19)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Twenty grey pictures, four of them broken: the first, two neighbours, the last."""
    place = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for i in range(N):
        path = place / f"{i:02d}.png"
        Image.fromarray(rng.integers(0, 256, (9 + i, 12), dtype=np.uint8)).save(path)
        if i in BROKEN:
            path.write_bytes(b"broken")
    return place


@pytest.fixture(scope="module")
def both(folder, tmp_path_factory):
    source, cache = open_source(folder), tmp_path_factory.mktemp("cache")
    return [open_pictures(source, 10, way, cache) for way in ("once", "stream")]


def test_both_ways_decode_the_same_and_name_the_same_broken_ones(both):
    once, stream = (list(pictures.decoded(range(N))) for pictures in both)
    for (i, a), (j, b) in zip(once, stream, strict=True):
        assert i == j
        assert isinstance(a, BadPicture) == isinstance(b, BadPicture) == (i in BROKEN)
        if i not in BROKEN:
            np.testing.assert_array_equal(a, b)


def test_both_ways_have_one_digest_and_one_normalisation(both, folder):
    once, stream = both
    assert once.sample_digest() == stream.sample_digest()
    assert once.mean_std() == stream.mean_std()
    source = open_source(folder)
    values = np.concatenate([source.read(i, 10).ravel() / 255 for i in range(N) if i not in BROKEN])
    mean, std = stream.mean_std()
    np.testing.assert_allclose([mean[0], std[0]], [values.mean(), values.std()])


def test_a_digest_changes_with_any_sampled_picture(both, tmp_path):
    images, labels = digits("/test")
    first = Pictures(ArraySource("a", images, labels), None)
    elsewhere = Pictures(ArraySource("b", images.copy(), None), None)
    assert first.sample_digest() == elsewhere.sample_digest()
    changed = images.copy()
    changed[-1, 0, 0] ^= 1
    assert Pictures(ArraySource("a", changed, labels), None).sample_digest() != (
        first.sample_digest()
    )
    assert Pictures(ArraySource("a", images[:-1], None), None).sample_digest() != (
        first.sample_digest()
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_gives_the_same_batches_and_stand_ins_either_way(both, workers):
    once, stream = both
    cached = Loader(once.cache, 6, seed=3)
    streamed = Loader(stream.source, 6, seed=3, short_side=10, workers=workers)
    assert cached.steps_per_epoch == streamed.steps_per_epoch == N // 6
    batches = [loader.batches(1) for loader in (cached, streamed)]
    for (i, a), (j, b) in islice(zip(*batches, strict=True), 7):
        assert torch.equal(i, j)
        assert not set(i.tolist()) & set(BROKEN)
        assert all(torch.equal(getattr(a, part), getattr(b, part)) for part in vars(a))
    for made in batches:
        made.close()


class Endless(ArraySource):
    """More of the same digits than any disk holds."""

    def __len__(self) -> int:
        return 10**15

    def read(self, index, short_side=None):
        return super().read(index % len(self.images), short_side)


def test_pictures_are_decoded_once_where_the_disk_has_room_and_streamed_where_not(tmp_path):
    images, _ = digits("/test")
    way, why = choose_decode(ArraySource("few", images, None), None, tmp_path / "not" / "made")
    assert way == "once"
    assert "takes about 32.0 kB of the" in why
    assert not (tmp_path / "not").exists()
    way, why = choose_decode(Endless("many", images, None), None, tmp_path)
    assert way == "stream"
    assert "would take about 64000000.0 GB" in why
    assert "--cache" in why


def test_a_cache_that_is_there_is_used(both, folder, tmp_path):
    source = open_source(folder)
    open_pictures(source, 10, "once", tmp_path)
    assert choose_decode(source, 10, tmp_path) == ("once", "as they already are, in the cache")
    way, why = choose_decode(source, 9, tmp_path)
    assert way == "once"
    assert "takes about" in why


def test_too_many_broken_pictures_end_it_either_way(folder, tmp_path):
    source = open_source(folder)
    with pytest.raises(Failure, match=r"4 of 20 .*more than --max-bad 3 allows"):
        open_pictures(source, 10, "once", tmp_path, max_bad=3)
    loader = Loader(source, 20, short_side=10, max_bad=3)
    batches = loader.batches()
    with pytest.raises(Failure, match=r"4 of 20 .*more than --max-bad 3 allows"):
        next(batches)
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(b"broken")
    with pytest.raises(UserError, match=r"none of the \d+ pictures looked at .*; .*: "):
        choose_decode(open_source(tmp_path, channels=1), 10, tmp_path / "cache")
