"""What a study refuses before it trains anything."""

import pytest
from PIL import Image

from wessl.errors import UserError
from wessl.study.data import open_labelled, refuse_other_classes


def test_test_classes_that_training_lacks_are_named_before_the_first_run(tmp_path):
    for part, kinds in (("train", "ab"), ("test", "bc")):
        for kind in kinds:
            (tmp_path / part / kind).mkdir(parents=True)
            Image.new("L", (8, 8)).save(tmp_path / part / kind / "x.png")
    train = open_labelled(str(tmp_path / "train"), "--train", str(tmp_path / "cache"))
    test = open_labelled(str(tmp_path / "test"), "--test", str(tmp_path / "cache"))
    with pytest.raises(UserError, match=r"1 class that --train .* lacks \(c\)"):
        refuse_other_classes(train, test)
    refuse_other_classes(train, train)
    with pytest.raises(UserError, match="parts of a data set and not classes"):
        open_labelled(str(tmp_path), "--train", str(tmp_path / "cache"))
