"""Pictures that the tests of training share."""

import pytest
from tiny import build_digits, build_pictures

from wessl.data.cache.cache import PictureCache


@pytest.fixture(scope="session")
def pictures(tmp_path_factory) -> PictureCache:
    """48 random grey pictures of 10 x 10."""
    return build_pictures(tmp_path_factory.mktemp("pictures"))


@pytest.fixture(scope="session")
def digits(tmp_path_factory) -> PictureCache:
    return build_digits(tmp_path_factory.mktemp("digits"))
