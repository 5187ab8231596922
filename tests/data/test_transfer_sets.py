"""Small archives in the official layouts: what is read is what was put there."""

import io
import pickle
import struct
from typing import ClassVar

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from wessl.data.labelled.cifar import read_arrays
from wessl.data.labelled.transfer_sets import NAMES, open_transfer_set
from wessl.data.sources.open import Source
from wessl.errors import UserError


def colour(number: int) -> int:
    return (37 * number) % 200 + 20


def picture(path, number: int) -> None:
    """A JPEG of one grey level that tells which picture it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((12, 16, 3), colour(number), np.uint8)
    Image.fromarray(pixels).save(path, "jpeg", quality=95)


def lines(path, text) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in text))


def matrix(path, **values) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, values)


def struct_array(**fields):
    """MATLAB's table: a row of records."""
    count = len(next(iter(fields.values())))
    table = np.zeros((1, count), dtype=[(name, object) for name in fields])
    for name, values in fields.items():
        table[name][0, :] = values
    return table


def held(source: Source) -> dict[str, tuple[str, int]]:
    """Class and grey level by the picture's name."""
    classes = [source.classes[i] for i in source.labels]
    levels = [round(float(source.read(i).mean())) for i in range(len(source))]
    return {
        source.name(i): pair for i, pair in enumerate(zip(classes, levels, strict=True))
    }  # fmt: skip


def near(found, expected):
    """JPEG may move a level by one."""
    assert found.keys() == expected.keys()
    for name, (label, level) in expected.items():
        assert found[name][0] == label
        assert abs(found[name][1] - level) <= 2


def make_food101(root):
    names = {"train": ["pie/10", "tacos/11", "pie/12"], "test": ["tacos/13", "pie/14"]}
    for part, some in names.items():
        lines(root / f"food-101/meta/{part}.txt", some)
        for name in some:
            picture(root / f"food-101/images/{name}.jpg", int(name.split("/")[1]))
    return {
        part: {f"images/{n}.jpg": (n.split("/")[0], colour(int(n.split("/")[1]))) for n in some}
        for part, some in names.items()
    }


def make_dtd(root):
    expected, number = {}, 0
    for part in ("train", "val", "test"):
        names = [f"{c}/{c}_{part}.jpg" for c in ("banded", "dotted")]
        lines(root / f"dtd/labels/{part}1.txt", names)
        lines(root / f"dtd/labels/{part}2.txt", reversed(names[:1]))
        expected[part] = {}
        for name in names:
            number += 1
            picture(root / "dtd/images" / name, number)
            expected[part][f"images/{name}"] = (name.split("/")[0], colour(number))
    return expected


def make_pets(root):
    rows = {"trainval": [("Abyssinian", 1), ("great_pyrenees", 16)], "test": [("Abyssinian", 1)]}
    expected = {}
    for file, (part, number) in {"trainval": ("train", 5), "test": ("test", 6)}.items():
        lines(
            root / f"oxford-iiit-pet/annotations/{file}.txt",
            [f"{breed}_{number} {k} 1 1" for breed, k in rows[file]],
        )
        expected[part] = {}
        for breed, _ in rows[file]:
            picture(root / f"oxford-iiit-pet/images/{breed}_{number}.jpg", number)
            expected[part][f"images/{breed}_{number}.jpg"] = (breed, colour(number))
    return expected


def make_sun397(root):
    parts = {
        "train": ("Training_01.txt", ["/a/abbey/sun_1.jpg", "/a/apse/indoor/sun_2.jpg"]),
        "test": ("Testing_01.txt", ["/a/apse/indoor/sun_3.jpg", "/a/abbey/sun_4.jpg"]),
    }
    expected = {}
    for part, (file, names) in parts.items():
        lines(root / "Partitions" / file, names)
        expected[part] = {}
        for name in names:
            number = int(name[-5])
            picture(root / f"SUN397{name}", number)
            expected[part][f"SUN397{name}"] = (name[1:].rsplit("/", 1)[0], colour(number))
    return expected


def make_cars(root):
    expected = {}
    for part, numbers in {"train": [1, 2, 3], "test": [1, 2]}.items():
        names = [f"{i:05d}.jpg" for i in numbers]
        fields = dict(bbox_x1=numbers, **{"class": [1 + i % 2 for i in numbers]}, fname=names)
        where = "devkit/cars_train_annos" if part == "train" else "cars_test_annos_withlabels"
        matrix(root / f"cars/{where}.mat", annotations=struct_array(**fields))
        expected[part] = {}
        for i, name in zip(numbers, names, strict=True):
            picture(root / f"cars/cars_{part}/{name}", i + 7 * len(part))
            level = colour(i + 7 * len(part))
            expected[part][f"cars_{part}/{name}"] = (f"{1 + i % 2:03d}", level)
    return expected


def make_flowers102(root):
    labels = np.array([[2, 1, 1, 2, 1, 2]])
    matrix(root / "flowers/imagelabels.mat", labels=labels)
    sets = {"trnid": [[1, 2]], "valid": [[3, 4]], "tstid": [[6, 5]]}
    matrix(root / "flowers/setid.mat", **{name: np.array(x) for name, x in sets.items()})
    for i in range(1, 7):
        picture(root / f"flowers/jpg/image_{i:05d}.jpg", i)
    return {
        part: {
            f"jpg/image_{i:05d}.jpg": (f"{labels[0, i - 1]:03d}", colour(i)) for i in sets[name][0]
        }
        for part, name in {"train": "trnid", "val": "valid", "test": "tstid"}.items()
    }


FILES = {
    "food101": make_food101,
    "dtd": make_dtd,
    "pets": make_pets,
    "sun397": make_sun397,
    "cars": make_cars,
    "flowers102": make_flowers102,
}
PER_CLASS = {"pets", "caltech101", "flowers102"}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("by", ["name", "layout"])
def test_pictures_and_classes_are_those_of_the_official_lists(tmp_path, name, by):
    expected = FILES[name](tmp_path)
    found = open_transfer_set(f"{name}:{tmp_path}" if by == "name" else tmp_path)
    assert found.name == name
    assert found.metric == ("mean per class" if name in PER_CLASS else "top-1")
    assert (found.val is not None) == ("val" in expected)
    for part, content in expected.items():
        source = getattr(found, part)
        near(held(source), content)
        assert source.classes == found.classes == sorted(found.classes)
        assert [source.name(i) for i in range(len(source))] == list(content)
    locations = {getattr(found, part).location for part in expected}
    assert len(locations) == len(expected)


def test_the_older_list_of_cars_is_read_too(tmp_path):
    paths = [f"car_ims/{i:06d}.jpg" for i in range(1, 5)]
    fields = {"relative_im_path": paths, "class": [1, 2, 2, 1], "test": [0, 0, 1, 1]}
    matrix(tmp_path / "cars_annos.mat", annotations=struct_array(**fields))
    for i, path in enumerate(paths):
        picture(tmp_path / path, i)
    found = open_transfer_set(f"cars:{tmp_path}")
    near(held(found.train), {paths[0]: ("001", colour(0)), paths[1]: ("002", colour(1))})
    near(held(found.test), {paths[2]: ("002", colour(2)), paths[3]: ("001", colour(3))})


@pytest.fixture
def caltech(tmp_path):
    for label, count in {"accordion": 33, "Faces": 31, "BACKGROUND_Google": 40}.items():
        for i in range(count):
            picture(tmp_path / f"101_ObjectCategories/{label}/image_{i:04d}.jpg", i)
    return tmp_path


def test_caltech_trains_on_thirty_a_class_by_seed_and_tests_on_the_rest(caltech):
    first, again, other = (open_transfer_set(f"caltech101:{caltech}", seed=s) for s in (0, 0, 1))
    assert first.metric == "mean per class"
    assert first.classes == ["Faces", "accordion"]
    assert np.bincount(first.train.labels).tolist() == [30, 30]
    assert np.bincount(first.test.labels).tolist() == [1, 3]
    train, test = set(held(first.train)), set(held(first.test))
    assert len(train | test) == 64
    assert set(held(again.train)) == train
    assert set(held(other.train)) != train
    assert "(seed 1)" in other.split
    inside = open_transfer_set(caltech / "101_ObjectCategories")
    assert {f"101_ObjectCategories/{name}" for name in held(inside.train)} == train


def test_a_class_of_caltech_too_small_to_test_is_named(caltech):
    (caltech / "101_ObjectCategories/Faces/image_0000.jpg").unlink()
    with pytest.raises(UserError, match="Faces has 30 pictures, so none is left to test"):
        open_transfer_set(caltech)
    (caltech / "101_ObjectCategories/Faces/image_0001.jpg").unlink()
    with pytest.raises(UserError, match="class 'Faces' has 29 pictures"):
        open_transfer_set(caltech)


class Python2Pickler(pickle._Pickler):
    """Bytes as Python 2 wrote its strings: the archives are that old."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_bytes(self, value):
        self.write(b"T" + struct.pack("<i", len(value)) + value)
        self.memoize(value)

    dispatch[bytes] = save_bytes


def python2(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(value)
    # The module's name in numpy 1, which wrote the archives.
    path.write_bytes(
        file.getvalue().replace(b"numpy._core.multiarray\n", b"numpy.core.multiarray\n")
    )


def rows(count, seed):
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


def make_cifar10(root, style):
    names = [b"plane", b"car", b"bird"]
    data, labels = rows(12, 0), [i % 3 for i in range(12)]
    files = [*[f"data_batch_{i}" for i in range(1, 6)], "test_batch"]
    for i, name in enumerate(files):
        part = slice(2 * i, 2 * i + 2)
        if style == "pickle":
            content = {b"data": data[part], b"labels": labels[part], b"batch_label": b"x"}
            python2(root / "cifar-10-batches-py" / name, content)
        else:
            content = np.column_stack([np.array(labels[part], np.uint8), data[part]])
            path = root / "cifar-10-batches-bin" / f"{name}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content.tobytes())
    if style == "pickle":
        python2(root / "cifar-10-batches-py/batches.meta", {b"label_names": names})
    else:
        lines(root / "cifar-10-batches-bin/batches.meta.txt", [n.decode() for n in names])
    return data, labels, 10


def make_cifar100(root, style):
    names = [f"fine{i}" for i in range(5)]
    data, labels = rows(6, 1), [4, 3, 2, 1, 0, 4]
    for name, part in {"train": slice(0, 4), "test": slice(4, 6)}.items():
        if style == "pickle":
            content = {
                b"data": data[part],
                b"fine_labels": labels[part],
                b"coarse_labels": [0] * len(labels[part]),
            }
            python2(root / "cifar-100-python" / name, content)
        else:
            both = np.column_stack([np.zeros(len(labels[part])), labels[part]]).astype(np.uint8)
            path = root / "cifar-100-binary" / f"{name}.bin"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(np.column_stack([both, data[part]]).tobytes())
    if style == "pickle":
        python2(root / "cifar-100-python/meta", {b"fine_label_names": [n.encode() for n in names]})
    else:
        lines(root / "cifar-100-binary/fine_label_names.txt", names)
    return data, labels, 4


@pytest.mark.parametrize("style", ["pickle", "binary"])
@pytest.mark.parametrize(("name", "make"), [("cifar10", make_cifar10), ("cifar100", make_cifar100)])
def test_cifar_is_read_from_either_archive(tmp_path, name, make, style):
    data, labels, trained = make(tmp_path, style)
    found = open_transfer_set(tmp_path)
    assert (found.name, found.metric, found.val) == (name, "top-1", None)
    assert (len(found.train), len(found.test)) == (trained, len(data) - trained)
    for i, row in enumerate(data):
        source = found.train if i < trained else found.test
        pixels = source.read(i if i < trained else i - trained)
        # Stored plane by plane, each row by row.
        for channel, y, x in [(0, 0, 0), (0, 0, 31), (1, 5, 7), (2, 31, 30)]:
            assert pixels[y, x, channel] == row[channel * 1024 + y * 32 + x]
    assert [*found.train.labels, *found.test.labels] == labels
    assert found.classes[1] in ("car", "fine1")


class Evil:
    def __reduce__(self):
        return (print, ("this must not be printed",))


def test_a_pickle_that_would_run_code_is_refused_before_it_does(tmp_path, capsys):
    path = tmp_path / "data_batch_1"
    for hidden in (Evil(), {b"data": Evil()}):
        path.write_bytes(pickle.dumps(hidden))
        with pytest.raises(UserError, match=r"data_batch_1 cannot be read: .*builtins\.print"):
            read_arrays(path)
    path.write_bytes(b"cos\nsystem\n(S'echo this must not be printed'\ntR.")
    with pytest.raises(UserError, match=r"posix|os\.system"):
        read_arrays(path)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "data_batch_1 cannot be read: EOFError"),
        (pickle.dumps([1]), "holds a list"),
        (pickle.dumps({b"data": rows(2, 0)[:, :9], b"labels": [0, 1]}), "no rows of 3072 bytes"),
        (pickle.dumps({b"data": rows(2, 0), b"labels": [0]}), "no rows of 3072 bytes"),
        (pickle.dumps({b"data": rows(2, 0), b"labels": [0, 7]}), "label 7, where 3 classes"),
    ],
)
def test_a_damaged_batch_of_cifar_is_told(tmp_path, content, message):
    make_cifar10(tmp_path, "pickle")
    (tmp_path / "cifar-10-batches-py/data_batch_1").write_bytes(content)
    with pytest.raises(UserError, match=message):
        open_transfer_set(f"cifar10:{tmp_path}")


def test_missing_parts_of_cifar_are_named(tmp_path):
    make_cifar10(tmp_path, "pickle")
    (tmp_path / "cifar-10-batches-py/data_batch_4").unlink()
    with pytest.raises(UserError, match="data_batch_4 does not exist; extract the whole archive"):
        open_transfer_set(tmp_path)
    make_cifar10(tmp_path / "b", "binary")
    file = tmp_path / "b/cifar-10-batches-bin/test_batch.bin"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UserError, match=r"test_batch.bin holds 6145 bytes, no multiple of 3073"):
        open_transfer_set(tmp_path / "b")


LOST = {
    "food101": ("food-101/images/pie/12.jpg", r"1 of 3 pictures are not there \(images/pie/12.jpg"),
    "dtd": ("dtd/labels/val1.txt", r"labels/val1.txt does not exist; extract the whole archive"),
    "pets": ("oxford-iiit-pet/annotations/test.txt", r"annotations/test.txt does not exist"),
    "sun397": ("Partitions/Testing_01.txt", r"Testing_01.txt does not exist"),
    "cars": ("cars/cars_test_annos_withlabels.mat", r"annos_withlabels.mat does not exist"),
    "flowers102": ("flowers/imagelabels.mat", r"imagelabels.mat does not exist"),
}


@pytest.mark.parametrize("name", LOST)
def test_a_lost_file_is_named(tmp_path, name):
    FILES[name](tmp_path)
    path, message = LOST[name]
    (tmp_path / path).unlink()
    with pytest.raises(UserError, match=message):
        open_transfer_set(tmp_path)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("cars/devkit/cars_train_annos.mat", "cars_train_annos.mat .*fname"),
        ("cars/cars_test_annos_withlabels.mat", "withlabels.mat .*fname"),
    ],
)
def test_a_matlab_file_of_something_else_is_told(tmp_path, path, message):
    make_cars(tmp_path)
    matrix(tmp_path / path, annotations=struct_array(other=[1, 2]))
    with pytest.raises(UserError, match=message):
        open_transfer_set(tmp_path)
    (tmp_path / path).write_bytes(b"not a matrix")
    with pytest.raises(UserError, match=path.rpartition("/")[2]):
        open_transfer_set(tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_a_named_dataset_that_is_not_there_says_what_it_looks_for(tmp_path, name):
    with pytest.raises(UserError, match=f"{name}:.*neither this folder nor one in it holds"):
        open_transfer_set(f"{name}:{tmp_path}")
    with pytest.raises(UserError, match="is no folder; give NAME:PATH with a name of food101,"):
        open_transfer_set(f"{name}:{tmp_path / 'none'}")


def class_folders(root, **parts):
    for part, counts in parts.items():
        for label, count in counts.items():
            for i in range(count):
                picture(root / part / label / f"{i}.jpg", i)


def test_any_dataset_with_class_folders_is_one(tmp_path):
    class_folders(tmp_path, train={"a": 2, "b": 1, "c": 3}, val={"a": 1, "c": 2})
    found = open_transfer_set(tmp_path)
    assert found.val is None
    assert found.test.labels.tolist() == [0, 2, 2]
    assert found.test.classes == ["a", "b", "c"]
    class_folders(tmp_path, test={"b": 4, "c": 1})
    found = open_transfer_set(tmp_path)
    assert found.val.labels.tolist() == [0, 2, 2]
    assert found.test.labels.tolist() == [1, 1, 1, 1, 2]
    assert (found.name, found.metric) == (tmp_path.name, "top-1")


def test_class_folders_alone_give_up_a_fifth_of_each_class_by_seed(tmp_path):
    class_folders(tmp_path, stones={"a": 10, "b": 5, "c": 2})
    found = open_transfer_set(tmp_path / "stones", seed=1)
    assert found.val is None
    assert np.bincount(found.test.labels).tolist() == [2, 1, 1]
    assert np.bincount(found.train.labels).tolist() == [8, 4, 1]
    train, test = ({part.name(i) for i in range(len(part))} for part in (found.train, found.test))
    assert not train & test
    assert train | test == {
        f"{label}/{i}.jpg" for label, count in dict(a=10, b=5, c=2).items() for i in range(count)
    }
    assert "seed 1" in found.split
    for i in range(len(found.test)):
        assert found.classes[found.test.labels[i]] == found.test.name(i)[0]
    again, other = (open_transfer_set(tmp_path / "stones", seed=seed) for seed in (1, 2))
    assert (again.test.fingerprint == found.test.fingerprint) > (
        other.test.fingerprint == found.test.fingerprint
    )
    class_folders(tmp_path, single={"a": 1, "b": 1})
    with pytest.raises(UserError, match="one picture a class, none to test on"):
        open_transfer_set(tmp_path / "single")


def test_class_folders_that_do_not_fit_are_named(tmp_path):
    with pytest.raises(UserError, match="none of the known datasets; give NAME:PATH"):
        open_transfer_set(tmp_path)
    class_folders(tmp_path, train={"a": 2, "b": 1}, test={"a": 1, "d": 2})
    with pytest.raises(UserError, match="test has classes that train lacks: d"):
        open_transfer_set(tmp_path)
    picture(tmp_path / "flat/train/1.jpg", 1)
    picture(tmp_path / "flat/test/1.jpg", 1)
    with pytest.raises(UserError, match="train has no class folders"):
        open_transfer_set(tmp_path / "flat")


def test_grey_pictures_become_colour_where_the_encoder_sees_colour(tmp_path):
    for part in ("train", "test"):
        for label in ("a", "b"):
            path = tmp_path / part / label / "1.png"
            path.parent.mkdir(parents=True)
            Image.fromarray(np.full((4, 4), 9, np.uint8)).save(path)
    assert open_transfer_set(tmp_path).train.channels == 1
    assert open_transfer_set(tmp_path, channels=3).train.read(0).shape == (4, 4, 3)


def test_the_old_pickles_of_these_tests_are_python_twos():
    """The oracle of the oracle: strings come back as text under Python 2's rules."""
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump({b"data": b"abc"})
    assert pickle.loads(file.getvalue(), encoding="ascii") == {"data": "abc"}
