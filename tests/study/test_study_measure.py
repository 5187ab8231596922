"""What a study takes from measurements before its own."""

import shutil

import pytest

from wessl.run import Run
from wessl.study.measure import OF_HEADS, found_before


@pytest.mark.parametrize("known", [dict(fingerprint="old"), {}])
def test_heads_are_compared_on_changed_pictures_unless_they_are_gone(tmp_path, known):
    run, job = Run.create(tmp_path / "run", {}), dict(train="photos", fingerprint="new")
    (run.checkpoints / "step-1.pt").touch()
    measured = {name: dict(value=0.5) for name in OF_HEADS}
    run.save_result("study-1", dict(kind="study", train="photos", measured=measured) | known)
    assert found_before(run, job) is None
    assert found_before(run, job | known) == (measured if known else None)
    shutil.rmtree(run.checkpoints)  # as --slim leaves it
    assert found_before(run, job) == measured
    assert found_before(run, job | dict(train="drawings")) is None
