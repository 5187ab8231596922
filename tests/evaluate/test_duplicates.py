import numpy as np
import pytest
import torch

from wessl.data.cache.build import build_cache
from wessl.data.sources.open import open_source
from wessl.evaluate.duplicates import common_pictures


@pytest.fixture
def cache_of(tmp_path):
    def build(name, images):
        np.savez(tmp_path / f"{name}.npz", images=images)
        return build_cache(open_source(tmp_path / f"{name}.npz"), None, tmp_path, workers=0)

    return build


@pytest.fixture
def random_images():
    return np.random.default_rng(0).integers(0, 256, (30, 12, 9, 3), dtype=np.uint8)


def test_pictures_in_both_sets_are_found_once_a_test_picture(cache_of, random_images):
    test = random_images[20:].copy()
    test[3], test[7] = random_images[5], random_images[11]
    train = random_images[:20].copy()
    train[17] = train[5]
    found = common_pictures(cache_of("train", train), cache_of("test", test))
    assert found == [(5, 3), (11, 7)]


def test_one_changed_pixel_anywhere_makes_another_picture(cache_of, random_images):
    test = random_images[:3].copy()
    test[0, 0, 0, 0] ^= 1  # a corner
    test[1, 6, 4, 1] ^= 1  # the middle
    assert common_pictures(cache_of("a", random_images), cache_of("b", test)) == [(2, 2)]


def test_pictures_alike_in_their_middle_are_told_apart_by_a_plain_loop_too(cache_of):
    images = np.zeros((40, 6, 6), np.uint8)
    images[:, 0, 0] = np.arange(40) // 2
    train, test = cache_of("train", images[::2]), cache_of("test", images[1:20:2])
    found = common_pictures(train, test)
    loop = [
        (i, j)
        for j in range(len(test))
        for i in range(len(train))
        if torch.equal(train.picture(i), test.picture(j))
    ]
    assert found == loop == [(i, i) for i in range(10)]


def test_the_same_bytes_in_another_shape_are_another_picture(cache_of, random_images):
    turned = random_images.reshape(30, 9, 12, 3)
    assert common_pictures(cache_of("a", random_images), cache_of("b", turned)) == []


def test_only_the_rows_that_count_are_compared(cache_of, random_images):
    images = np.concatenate([random_images, random_images[:4]])
    cache = cache_of("all", images)
    rows = torch.arange(34)
    assert common_pictures(cache, cache, rows[:30], rows[32:]) == [(2, 32), (3, 33)]
    assert common_pictures(cache, cache, rows[4:30], rows[30:]) == []
