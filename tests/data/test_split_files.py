"""Published lists of labelled pictures, looked up among names that stand where they stand."""

import os
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from wessl.data.labelled.split_files import read_split, split_draws
from wessl.data.sources.names import Names
from wessl.errors import UserError

CLASSES = ["n01440764", "n01443537", "n01484850"]
PICTURES = sorted(f"{c}/{c}_{10 * i}.JPEG" for c in CLASSES for i in range(100))


def table(names):
    return Names.collect(os.fsencode(name) for name in names)


def write(path, names):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{name}\n" for name in names))
    return path


def listed(*numbers):
    return [f"{c}_{10 * i}.JPEG" for c in CLASSES for i in numbers]


@pytest.fixture
def data():
    labels = torch.tensor([CLASSES.index(name.split("/")[0]) for name in PICTURES])
    return SimpleNamespace(names=table(PICTURES), labels=labels, classes=CLASSES)


def test_listed_pictures_are_found_by_name_wherever_they_lie(tmp_path):
    path = write(tmp_path / "list.txt", listed(3, 99, 0))
    chosen = read_split(path, table(PICTURES), CLASSES)
    assert chosen.dtype == torch.int64
    assert [os.path.basename(PICTURES[i]) for i in chosen] == sorted(
        listed(3, 99, 0), key=lambda name: PICTURES.index(f"{name[:9]}/{name}")
    )
    elsewhere = [f"deep/er/{name}" for name in PICTURES]
    assert torch.equal(read_split(path, elsewhere), chosen)
    reencoded = [name.replace(".JPEG", ".webp") for name in PICTURES]
    assert torch.equal(read_split(path, table(reencoded), CLASSES), chosen)


@given(
    st.lists(st.text("ab.é_-", min_size=1, max_size=9), unique=True, min_size=1),
    st.randoms(use_true_random=False),
)
def test_lookup_is_that_of_a_dictionary(tmp_path_factory, stems, random):
    names = [f"{random.choice(['', 'a/', 'a.b/c/'])}x_{stem}.jpg" for stem in stems]
    number = {f"x_{stem}.png": i for i, stem in enumerate(stems)}
    some = random.sample(sorted(number), random.randint(1, len(stems)))
    path = write(tmp_path_factory.mktemp("lists") / "list.txt", some)
    assert read_split(path, table(names)).tolist() == sorted(number[name] for name in some)


def test_draws_are_told_apart_by_what_they_hold_and_not_by_their_names(tmp_path, data):
    for draw, name in enumerate(["5imgs_class.txt", "5imgs_class.txt", "3imgs_class.txt"], 1):
        write(tmp_path / f"subsets{draw}" / name, listed(*range(draw, draw + 5)))
        write(tmp_path / f"subsets{draw}" / "1imgs_class.txt", listed(draw))
    write(tmp_path / "1percent.txt", listed(7)[:-1] + listed(8))
    draws = split_draws(tmp_path, data)
    assert {kind: len(lists) for kind, lists in draws.items()} == {1: 3, 5: 3, "1.7%": 1}
    for draw, chosen in enumerate(draws[5], 1):
        expected = {f"{name[:9]}/{name}" for name in listed(*range(draw, draw + 5))}
        assert {PICTURES[i] for i in chosen} == expected
    one = split_draws(tmp_path / "1percent.txt", data)
    assert torch.equal(one["1.7%"][0], draws["1.7%"][0])
    mixed = split_draws([tmp_path / "subsets2", tmp_path / "1percent.txt"], data)
    assert {kind: len(lists) for kind, lists in mixed.items()} == {1: 1, 5: 1, "1.7%": 1}
    unlabelled = SimpleNamespace(names=PICTURES, labels=None, classes=None)
    assert list(split_draws([tmp_path / "subsets3" / "3imgs_class.txt"], unlabelled)) == [5]


def test_one_percent_of_imagenet_is_called_so(tmp_path):
    names = [f"c{i % 10}_{i}.JPEG" for i in range(3000)]
    labels = torch.arange(3000) % 10
    data = SimpleNamespace(names=names, labels=labels, classes=[f"c{i}" for i in range(10)])
    chosen = [*range(29), 35]
    path = write(tmp_path / "1percent.txt", [names[i] for i in chosen])
    assert list(split_draws(path, data)) == ["1%"]


def test_the_part_of_a_list_that_concerns_a_subset_can_be_asked_for(tmp_path, data):
    path = write(tmp_path / "list.txt", [*listed(1, 2), "n99_1.JPEG", "n98_1.JPEG"])
    with pytest.raises(UserError, match=r"list.txt names 2 classes \(n98, n99\) that the data"):
        read_split(path, data.names, CLASSES)
    assert torch.equal(
        read_split(path, data.names, CLASSES, only_known=True),
        read_split(write(tmp_path / "part.txt", listed(1, 2)), data.names, CLASSES),
    )
    with pytest.raises(UserError, match="names no picture of the data's classes"):
        read_split(path, data.names, ["tench", "shark"], only_known=True)


def test_folders_named_in_words_are_no_obstacle(tmp_path):
    words = [name.replace("n01440764/", "tench/") for name in PICTURES]
    path = write(tmp_path / "list.txt", ["n01440764_10.JPEG"])
    (chosen,) = read_split(path, table(words), ["shark", "tench"]).tolist()
    assert words[chosen] == "tench/n01440764_10.JPEG"


def test_missing_pictures_are_counted_and_the_first_named(tmp_path, data):
    path = write(tmp_path / "list.txt", listed(1) + [f"n01440764_{i}.JPEG" for i in range(1, 8)])
    with pytest.raises(UserError, match=r"names 7 pictures \(n01440764_1, .*_5, \.\.\.\) that the"):
        read_split(path, data.names, CLASSES)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["n01440764_10.JPEG", "", "n01440764_20.JPEG"], "line 2: is blank"),
        (["n01440764_10.JPEG", "a/n01440764_10.jpg"], "line 2: n01440764_10 is on line 1 already"),
        (["tench.JPEG"], r"line 1: 'tench.JPEG' has no class before an underscore"),
        ([], "is empty"),
    ],
)
def test_a_line_that_cannot_be_meant_is_named(tmp_path, lines, message):
    with pytest.raises(UserError, match=message):
        read_split(write(tmp_path / "list.txt", lines), PICTURES)


def test_a_name_that_is_there_twice_is_ambiguous(tmp_path):
    path = write(tmp_path / "list.txt", ["n01440764_10.JPEG"])
    twice = [*PICTURES, "copies/n01440764_10.png"]
    with pytest.raises(UserError, match=r"n01440764_10 is there 2 times: .*, copies/"):
        read_split(path, twice)


def test_the_same_list_twice_is_no_second_draw(tmp_path, data):
    write(tmp_path / "a.txt", listed(1, 2))
    write(tmp_path / "b.txt", listed(2, 1))
    with pytest.raises(UserError, match=r"a.txt and .*b.txt hold the same pictures"):
        split_draws(tmp_path, data)


def test_absent_and_unreadable_lists_are_named(tmp_path, data):
    with pytest.raises(UserError, match=r"none.txt does not exist"):
        split_draws([tmp_path / "none.txt"], data)
    with pytest.raises(UserError, match=r"holds no .txt files"):
        split_draws(tmp_path, data)
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot be read as a list"):
        split_draws(tmp_path, data)
