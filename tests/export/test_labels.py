"""Tables of labels as people write them, and every way in which they go wrong."""

import os
import shutil

import numpy as np
import pytest
from PIL import Image

from wessl.data.sources.open import open_source
from wessl.errors import UserError
from wessl.export.label_table import as_text
from wessl.export.labels import read_labels, readable


@pytest.fixture
def data(tmp_path):
    """a/0.png, a/1.png, b/0.png, b/2.png below photos/, and one picture elsewhere."""
    rng = np.random.default_rng(0)
    for name in ("photos/a/0", "photos/a/1", "photos/b/0", "photos/b/2", "elsewhere/9"):
        path = tmp_path / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8), dtype=np.uint8)).save(path)
    return open_source(tmp_path / "photos", 1)


def table(tmp_path, text, name="labels.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "a/0.png,cat\nb/2.png,dog\n",
        "path,label\na/0.png,cat\nb/2.png,dog\n",
        "label,who,filename\ncat,me,a/0.png\n\ndog,me,b/2.png\n",
        "\ufeffa/0.png;cat\r\nb/2.png;dog\r\n",
        'a/0.png\t cat \n"b/2.png"\tdog',
        "./a/0.png, cat\nphotos/b/2.png, dog",  # the second seen from the table
        "ROOT/photos/a/0.png,cat\nphotos/../photos/b/2.png,dog",
        "a/0.png,cat\n2.png,dog",  # a file name that occurs once
        "a/0.png,cat\n./2.png,dog",
    ],
)
def test_a_table_may_be_written_in_many_ways(data, tmp_path, text):
    found = read_labels(table(tmp_path, text.replace("ROOT", str(tmp_path))), data)
    assert found.inside == {0: "cat", 3: "dog"}
    assert (found.outside, found.notes) == ({}, ())


def test_labels_in_latin_1_or_of_windows_become_text_and_utf_8_stays(data, tmp_path):
    path = tmp_path / "labels.csv"
    path.write_bytes("a/0.png,café\nb/2.png,naïve “œuf” à 3 €\n".encode("cp1252"))
    assert read_labels(path, data).inside == {0: "café", 3: "naïve “œuf” à 3 €"}
    assert read_labels(path, data, ["café", "naïve “œuf” à 3 €"]).counts["café"] == 1
    path.write_text("a/0.png,café\nb/2.png,Ærø\n", encoding="utf-8")
    assert read_labels(path, data).inside == {0: "café", 3: "Ærø"}


def test_labels_in_another_encoding_stay_as_many_as_they_are(data, tmp_path):
    path = tmp_path / "labels.csv"
    path.write_bytes("a/0.png,メ\na/1.png,ロ\nb/0.png,ワ\nb/2.png,ヰ\n".encode("cp932"))
    assert len(read_labels(path, data).counts) == 4
    each = {as_text(bytes([0xFF, byte]).decode("utf-8", "surrogateescape")) for byte in range(256)}
    assert len(each) == 256


def test_class_folders_in_latin_1_become_text_too(data, tmp_path):
    folder = os.fsencode(tmp_path / "classes")
    for name in (b"caf\xe9", "thé".encode()):
        os.makedirs(folder + b"/" + name)
        shutil.copy(tmp_path / "elsewhere" / "9.png", folder + b"/" + name + b"/9.png")
    assert read_labels(tmp_path / "classes", data).every == ["café", "thé"]


def test_a_path_in_latin_1_names_the_file_of_these_very_bytes(tmp_path):
    photos = os.fsencode(tmp_path / "photos")
    os.makedirs(photos)
    for name in (b"\xe9.png", b"e.png"):
        with open(photos + b"/" + name, "wb") as file:
            Image.new("L", (8, 8)).save(file, "png")
    (tmp_path / "labels.csv").write_bytes(b"\xe9.png,caf\xe9\ne.png,cafe\n")
    found = read_labels(tmp_path / "labels.csv", open_source(tmp_path / "photos", 1))
    assert found.counts == {"café": 1, "cafe": 1}


def test_a_labelled_picture_may_lie_elsewhere(data, tmp_path):
    text = f"a/0.png,cat\nelsewhere/9.png,dog\n{tmp_path}/elsewhere/9.png,dog\n"
    found = read_labels(table(tmp_path, text), data)
    assert (found.inside, found.outside) == ({0: "cat"}, {0: "dog"})
    assert found.elsewhere.read(0).shape == (8, 8, 1)
    assert found.every == ["cat", "dog"]
    assert "line 3" in found.notes[0]
    assert "is there already" in found.notes[0]
    assert readable(found, data, 256) == found


def test_the_end_of_a_path_is_enough_where_it_is_the_end_of_one_alone(data, tmp_path):
    home = tmp_path / "lists"
    home.mkdir()
    found = read_labels(table(home, "photos/a/0.png,cat\nphotos/b/2.png,dog\n"), data)
    assert found.inside == {0: "cat", 3: "dog"}
    above = open_source(tmp_path, 1)  # elsewhere/9, photos/a/0, photos/a/1, photos/b/0, photos/b/2
    found = read_labels(table(home, "a/0.png,cat\nb/0.png,dog\n"), above)
    assert found.inside == {1: "cat", 3: "dog"}
    shutil.copytree(tmp_path / "photos" / "a", tmp_path / "more" / "a")
    with pytest.raises(UserError, match=r"a/0\.png may be any of 2 pictures \(more/a/0\.png, ph"):
        read_labels(table(home, "a/0.png,cat\nb/0.png,dog\n"), open_source(tmp_path, 1))


def test_pictures_of_an_array_are_known_by_the_file_and_their_number(tmp_path):
    np.savez(tmp_path / "cells.npz", images=np.zeros((4, 8, 8), np.uint8))
    data = open_source(tmp_path / "cells.npz")
    (tmp_path / "lists").mkdir()
    for text in ("cells.npz[0],x\n../cells.npz[3],y", f"../cells.npz[0],x\n{data.name(3)},y"):
        assert read_labels(table(tmp_path / "lists", text), data).inside == {0: "x", 3: "y"}
    with pytest.raises(UserError, match=r"other/cells\.npz\[3\] is no picture"):
        read_labels(table(tmp_path, "cells.npz[0],x\nother/cells.npz[3],y"), data)


def test_class_folders_and_other_data_with_labels_do_too(data, tmp_path):
    found = read_labels(tmp_path / "photos", data)  # of which DATA may be a part, or all
    assert found.inside == {0: "a", 1: "a", 2: "b", 3: "b"}
    assert read_labels((tmp_path / "photos").as_uri(), data).every == found.every
    found = read_labels("builtin://digits/test", data)
    assert len(found.outside) == 500
    assert found.counts["7"] == 50
    again = read_labels("builtin://digits/test", open_source("builtin://digits/test"))
    assert len(again.inside) == 500


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("\n \n", "is empty"),
        ("path,label\n", "no line below it"),
        ("a/0.png,cat\na/1.jpg,dog", r"line 2: a/1\.jpg is no picture .* did you mean a/1.png\?"),
        ("a/0.png,cat\na/nix.png,dog", r"a/nix\.png is no .*, nor a file beside the table$"),
        ("a/0.png,cat\nx,dog\ny,dog\nz,dog", r"line 2: x is no .* 2 more .* line 4"),
        ("a/0.png,cat\n0.png,dog", r"line 2: 0\.png may be any of 2 pictures \(a/0\.png, b/0"),
        ("a/0.png,cat\na/2.png,dog", r"line 2: a/2\.png is no .*; did you mean b/2\.png\?$"),
        ("a/0.png,cat\nbb/0.png,dog", r"line 2: bb/0\.png is no .*; did you mean b/0\.png\?$"),
        ("a/0.png,cat\n/photos/b/2.png,dog", r"line 2: /photos/b/2\.png is no picture"),
        ("a/0.png,cat\n../b/2.png,dog", r"line 2: \.\./b/2\.png is no picture"),
        ("a/0.png,cat\nhotos/b/2.png,dog", r"line 2: hotos/b/2\.png is no picture"),
        ("a/0.png,cat\na/1.png,dog\n./a/0.png,dog", "line 3: .* 'dog' here and 'cat' in .* line 1"),
        ("a/0.png,cat\na/1.png,cat", "only one class, 'cat'"),
        ("a/0.png,cat\na/1.png,", r"line 2: no label for a/1\.png"),
        ("a/0.png,cat\n,dog", "line 2: no path"),
        ("a/0.png,cat\na/1.png,dog,3", "line 2: 3 columns"),
        ("path,label,confidence\na/0.png,cat,0.9", "its labels are guesses"),
        ("a/0.png,cat\n\0", "not a text file"),
    ],
)
def test_a_wrong_table_is_told_with_its_line(data, tmp_path, text, said):
    with pytest.raises(UserError, match=said):
        read_labels(table(tmp_path, text), data)


def test_given_classes_are_all_there_may_be(data, tmp_path):
    path = table(tmp_path, "a/0.png,cat\nb/2.png,dog\n")
    assert read_labels(path, data, ["dog", "cat"]).counts == {"cat": 1, "dog": 1}
    with pytest.raises(UserError, match="line 2: label 'dog' is not among --classes cat, dgo"):
        read_labels(path, data, ["cat", "dgo"])
    with pytest.raises(UserError, match="no picture is labelled 'cow'"):
        read_labels(path, data, ["cat", "dog", "cow"])


def test_a_folder_without_classes_or_with_an_empty_one_is_refused(data, tmp_path):
    with pytest.raises(UserError, match="has no labels"):
        read_labels(tmp_path / "elsewhere", data)
    (tmp_path / "photos" / "cow").mkdir()
    with pytest.raises(UserError, match="class folder 'cow' holds no pictures"):
        read_labels(tmp_path / "photos", data)
    for gone in ("gone.csv", "gone"):
        with pytest.raises(UserError, match=r"gone.* does not exist"):
            read_labels(tmp_path / gone, data)


def test_an_unreadable_labelled_picture_is_named_with_its_line(data, tmp_path):
    (tmp_path / "photos" / "b" / "2.png").write_bytes(b"no")
    found = read_labels(table(tmp_path, "a/0.png,cat\nb/2.png,dog\n"), data)
    with pytest.raises(UserError, match=r"line 2: b/2\.png cannot be decoded"):
        readable(found, data, 256)
    found = read_labels(table(tmp_path, "a/0.png,cat\nb/2.png,dog\nelsewhere/9.png,dog\n"), data)
    kept = readable(found, data, 256)
    assert kept.every == ["cat", "dog"]
    (note,) = kept.notes
    assert "line 2: b/2.png cannot be decoded (no picture that Pillow knows)" in note
