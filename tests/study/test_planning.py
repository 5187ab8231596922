"""What a study plans to do, before it does anything."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from wessl.data.pictures import SAMPLE, spaced
from wessl.errors import UserError
from wessl.study.asked import Asked, Planned
from wessl.study.data import find_data
from wessl.study.planning import plan_study
from wessl.study.sizes import SIZES
from wessl.study.studies import STUDIES
from wessl.study.table import build


def planned(data="builtin://digits", size="smoke", study="where-how", **asked) -> Planned:
    return plan_study(
        Asked(
            study=STUDIES[study],
            size=SIZES[size],
            data=find_data(str(data), None, None, size),
            out=Path("nowhere"),
            seeds=(0,),
            options=dict(device="cpu"),
            **asked,
        )
    )


def draw(folder: Path, counts: dict[str, int], seed: int = 0) -> Path:
    """A folder a class, with so many pictures."""
    rng = np.random.default_rng(seed)
    for name, count in counts.items():
        (folder / name).mkdir(parents=True)
        for i in range(count):
            pixels = rng.integers(0, 256, (32, 32), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{i:02}.png")
    return folder


def columns(data: Path, size: str = "smoke", **asked) -> list[str]:
    return [column.name for column in planned(data, size, **asked).columns]


def test_asking_for_the_usual_number_of_draws_is_not_another_measurement():
    for size, usual in (("small", 30), ("smoke", 10)):
        one = planned(size=size, protocols=("1-shot",))
        assert one.record == planned(size=size, protocols=("1-shot",), draws=usual).record
        assert one.record != planned(size=size, protocols=("1-shot",), draws=usual + 1).record
        assert one.settings.draws == usual


@pytest.mark.parametrize(
    ("settings", "beside"),
    [({}, True), ({"encoder.widths": (8, 16)}, True), ({"share": "codebook"}, False)],
)
def test_the_papers_numbers_stand_beside_the_papers_methods_alone(settings, beside):
    table = build(planned(study="weightings", settings=settings))
    printed = [row["results"]["1-shot"]["paper"] for row in table["rows"]]
    assert any(number is not None for number in printed) == beside


@pytest.mark.parametrize("part", ["train", "test"])
def test_any_changed_picture_is_measured_again_though_the_run_is_the_same(tmp_path, part):
    for name in ("train", "test"):
        draw(tmp_path / name, {"a": 50, "b": 50})
    before = planned(tmp_path)
    assert planned(tmp_path).record == before.record
    unseen = min(set(range(100)) - set(spaced(100, SAMPLE)))  # by the run's own digest
    Image.new("L", (32, 32)).save(tmp_path / part / "a" / f"{unseen:02}.png")
    after = planned(tmp_path)
    assert after.record != before.record
    assert [item.key for item in after.every] == [item.key for item in before.every]


def test_transfer_sets_are_known_by_their_pictures_too(tmp_path):
    for name in ("A", "B", "other/A"):
        for part in ("train", "test"):
            draw(tmp_path / name / part, {"a": 2, "b": 2}, seed=len(name))

    def record(*names):
        paths = tuple(str(tmp_path / name) for name in names)
        return planned(study="transfer", transfer=paths).record

    known = record("A")
    assert record("A") == known
    assert len({known, record("B"), record("other/A"), record("A", "B")}) == 4
    assert record("A", "B") == record("B", "A")
    shutil.copy(tmp_path / "B/test/a/00.png", tmp_path / "A/test/a/00.png")
    assert record("A") != known
    for twice in (("A", "B", "other/A"), ("A", "A")):
        with pytest.raises(UserError, match="A have one name, 'A', under which results are kept"):
            record(*twice)


def test_protocols_of_a_size_are_those_the_labels_allow_when_a_fifth_is_held_out(tmp_path):
    rare = draw(tmp_path / "rare", {"a": 12, "b": 5})
    assert columns(rare) == ["1-shot", "k-NN"]  # four of b are left
    for part in ("train", "test"):
        shutil.copytree(rare, tmp_path / "parts" / part)
    assert columns(tmp_path / "parts") == ["1-shot", "5-shot", "k-NN"]
    for part in ("train", "test"):
        draw(tmp_path / "single" / part, {"a": 1, "b": 1})
    # A small study has linear-fast, which chooses on labels that one a class does not leave.
    settings = {"optim.batch_size": 2}
    assert columns(tmp_path / "single", "small", settings=settings) == ["1-shot", "k-NN"]


def test_protocols_the_labels_do_not_allow_are_refused_before_training(tmp_path):
    rare = draw(tmp_path / "rare", {"a": 12, "b": 5})
    held = r"5-shot: class 'b' of --train has 4 labelled pictures, fewer than 5, after a fifth was"
    with pytest.raises(UserError, match=held):
        planned(rare, protocols=("1-shot", "5-shot"))
    for part in ("train", "test"):
        shutil.copytree(rare, tmp_path / "parts" / part)
    complaint = r"13-shot: class 'b' of --train has 5 .* \(2 classes have too few\); label more"
    with pytest.raises(UserError, match=complaint):
        planned(tmp_path / "parts", protocols=("13-shot",))
    with pytest.raises(UserError, match="one picture a class, none to test on; give --test"):
        planned(draw(tmp_path / "single", {"a": 1, "b": 1}))
