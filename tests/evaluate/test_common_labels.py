"""Labels of two sets in one numbering; by name is tested with the linear probe's folders."""

import numpy as np
import pytest
from PIL import Image

from wessl.data.cache.build import build_cache
from wessl.data.cache.cache import PictureCache
from wessl.data.sources.open import open_source
from wessl.errors import UserError
from wessl.evaluate.labels import common_labels


@pytest.fixture
def named(tmp_path) -> PictureCache:
    for i, label in enumerate(("ant", "bee", "cat")):
        (tmp_path / "named" / label).mkdir(parents=True)
        Image.new("L", (8, 8), 20 * i).save(tmp_path / "named" / label / f"{i}.png")
    return build_cache(open_source(tmp_path / "named"), None, tmp_path / "cache")


@pytest.fixture
def numbered(tmp_path) -> PictureCache:
    images = np.zeros((3, 8, 8), np.uint8)
    np.savez(tmp_path / "numbered.npz", images=images, labels=np.array([2, 0, 2]))
    return build_cache(open_source(tmp_path / "numbered.npz"), None, tmp_path / "cache")


def test_names_on_one_side_and_numbers_on_the_other_are_not_compared(named, numbered):
    with pytest.raises(UserError, match="training pictures' classes have names and the test"):
        common_labels(named, numbered)
    with pytest.raises(UserError, match="test pictures' classes have names and the training"):
        common_labels(numbered, named)


def test_numbers_on_both_sides_stand_for_themselves(numbered):
    labels, test_labels = common_labels(numbered, numbered)
    assert labels.tolist() == test_labels.tolist() == [2, 0, 2]
