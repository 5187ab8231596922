"""Every form of DATA and every kind of file, against Pillow's reading or values set by hand."""

import os
import pickle
import struct
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from wessl.data.decoding.bad_pictures import BadPicture
from wessl.data.sources.names import Names
from wessl.data.sources.open import FileSource, open_source
from wessl.data.workers.many import decode_many
from wessl.errors import UserError

RNG = np.random.default_rng(0)


def photo(height: int = 6, width: int = 8, channels: int = 3) -> np.ndarray:
    noise = RNG.integers(0, 256, (height, width, channels), dtype=np.uint8)
    return noise[:, :, 0] if channels == 1 else noise


def smooth(height: int, width: int) -> np.ndarray:
    small = Image.fromarray(photo(7, 9))
    return np.asarray(small.resize((width, height), Image.Resampling.BICUBIC))


def save(path: Path, pixels: np.ndarray | None = None, **options: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(photo() if pixels is None else pixels).save(path, **options)
    return path


def only(path: Path, **options: int) -> np.ndarray:
    source = open_source(path, **options)
    assert len(source) == 1
    return source.read(0)


def names(source: FileSource) -> list[str]:
    return [source.name(i) for i in range(len(source))]


# Folders


def test_a_flat_folder_is_sorted_and_has_no_labels(tmp_path):
    for name in ("b.png", "a.JPG", "c.webp", "d.bmp", "e.tiff"):
        save(tmp_path / name)
    source = open_source(tmp_path)
    assert names(source) == ["a.JPG", "b.png", "c.webp", "d.bmp", "e.tiff"]
    assert source.labels is None
    assert source.classes is None


def test_class_folders_give_labels_at_any_depth_and_sorted_class_names(tmp_path):
    for name in ("dog/1.png", "cat/deep/er/2.png", "cat/1.png", "empty-not.txt/3.png"):
        save(tmp_path / name)
    (tmp_path / "no pictures here").mkdir()
    source = open_source(str(tmp_path))
    assert source.classes == ["cat", "dog", "empty-not.txt"]
    named = {source.name(i): source.classes[source.labels[i]] for i in range(4)}
    assert named == {
        "dog/1.png": "dog",
        "cat/deep/er/2.png": "cat",
        "cat/1.png": "cat",
        "empty-not.txt/3.png": "empty-not.txt",
    }
    assert source.labels.dtype == np.int64


@pytest.mark.parametrize("stray", ["one/2.png", "stray.png"])
def test_one_folder_or_a_stray_picture_is_no_classification(tmp_path, stray):
    save(tmp_path / "one" / "1.png")
    if stray == "stray.png":
        save(tmp_path / "two" / "1.png")
    save(tmp_path / stray)
    assert open_source(tmp_path).labels is None


def test_hidden_files_other_endings_and_link_loops_are_ignored(tmp_path):
    save(tmp_path / "a" / "1.png")
    save(tmp_path / ".hidden.png")
    save(tmp_path / ".thumbnails" / "1.png")
    (tmp_path / "a" / "notes.txt").write_text("hello")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    assert names(open_source(tmp_path)) == ["a/1.png"]


def test_odd_names_are_kept(tmp_path):
    odd = ["grüße 日本.png", "with space\t.png", "quote'\".png", "-dash.png", "percent%20.png"]
    for name in odd:
        save(tmp_path / name)
    undecodable = os.fsencode(tmp_path) + b"/latin-\xe9.png"
    with open(undecodable, "wb") as file:
        Image.fromarray(photo()).save(file, "png")
    source = open_source(tmp_path)
    assert names(source) == sorted([*odd, "latin-\udce9.png"], key=os.fsencode)
    assert all(source.read(i).shape == (6, 8, 3) for i in range(len(source)))


@given(st.lists(st.binary(max_size=20).map(lambda name: name.replace(b"\0", b"a"))))
def test_names_sort_and_reorder_as_python_does(some):
    table = Names.collect(some)
    order = table.order()
    in_order = sorted(some)
    assert [some[i] for i in order] == in_order
    assert [os.fsencode(name) for name in table.take(order)] == in_order


def test_missing_and_empty_folders_and_unknown_schemes_are_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere does not exist.*a folder of pictures"):
        open_source(tmp_path / "nowhere")
    with pytest.raises(UserError, match="holds no pictures"):
        open_source(tmp_path)
    with pytest.raises(
        UserError, match=r"s3://bucket: URLs are those of tar shards.*builtin://digits"
    ):
        open_source("s3://bucket")
    with pytest.raises(UserError, match="unknown kind of data"):
        open_source("builtin://digits/validation")
    with pytest.raises(UserError, match="is one picture"):
        open_source(save(tmp_path / "one.png"))


def test_the_fingerprint_follows_names_sizes_and_times(tmp_path):
    first, second = save(tmp_path / "1.png"), save(tmp_path / "2.png")
    before = open_source(tmp_path).fingerprint
    assert open_source(tmp_path).fingerprint == before
    os.utime(first, ns=(1, 1))
    touched = open_source(tmp_path).fingerprint
    info = second.stat()
    second.write_bytes(second.read_bytes() + b"!")
    os.utime(second, ns=(info.st_atime_ns, info.st_mtime_ns))
    longer = open_source(tmp_path).fingerprint
    second.rename(tmp_path / "3.png")
    renamed = open_source(tmp_path).fingerprint
    assert len({before, touched, longer, renamed}) == 4


def test_the_index_of_a_large_folder_is_kept_until_a_folder_changes(tmp_path, monkeypatch):
    folder, kept = tmp_path / "many", tmp_path / "cache"
    for part in ("a", "b"):
        (folder / part).mkdir(parents=True)
        for i in range(5000):
            (folder / part / f"{i}.png").touch()
    an_hour_ago = time.time() - 3600
    for part in (folder, folder / "a", folder / "b"):
        os.utime(part, (an_hour_ago, an_hour_ago))
    first = open_source(folder, directory=kept)
    assert len(list(kept.iterdir())) == 1

    def fail(path: bytes) -> None:
        raise AssertionError("listed again")

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", fail)
        again = open_source(folder, directory=kept)
    assert names(again) == names(first) == sorted(names(first))
    assert np.array_equal(again.labels, first.labels)
    assert again.classes == ["a", "b"]
    (folder / "b" / "new.png").touch()
    assert len(open_source(folder, directory=kept)) == 10_001


def test_a_source_survives_pickling(tmp_path):
    save(tmp_path / "a" / "1.png")
    save(tmp_path / "b" / "1.png")
    for source in (open_source(tmp_path), open_source("builtin://digits/test")):
        twin = pickle.loads(pickle.dumps(source))
        assert np.array_equal(twin.read(1), source.read(1))
        assert (twin.name(1), twin.classes) == (source.name(1), source.classes)
        assert twin.fingerprint == source.fingerprint


# Lists and arrays


def test_a_list_is_relative_to_itself_and_keeps_its_order(tmp_path):
    elsewhere = save(tmp_path / "else" / "x.png")
    save(tmp_path / "data" / "b.png")
    save(tmp_path / "data" / "a.png")
    (tmp_path / "data" / "list.txt").write_text(f"b.png\r\n\n{elsewhere}\na.png\n")
    source = open_source(tmp_path / "data" / "list.txt")
    assert names(source) == ["b.png", str(elsewhere), "a.png"]
    assert source.labels is None
    assert [source.read(i).shape for i in range(3)] == [(6, 8, 3)] * 3


def test_a_list_may_carry_labels_in_words_or_numbers(tmp_path):
    listing = tmp_path / "list.tsv"
    listing.write_text("1.png\tdog\n2.png\tcat\n3.png\tdog\n")
    source = open_source(listing)
    assert source.labels.tolist() == [1, 0, 1]
    assert source.classes == ["cat", "dog"]
    listing.write_text("1.png\t10\n2.png\t9\n")
    assert open_source(listing).labels.tolist() == [10, 9]
    listing.write_text("1.png\t10\n2.png\n")
    with pytest.raises(UserError, match="line 2: all lines need a label, or none"):
        open_source(listing)


def test_a_list_that_is_empty_or_not_text_is_refused(tmp_path):
    (tmp_path / "empty.txt").write_text("\n\n")
    with pytest.raises(UserError, match="names no pictures"):
        open_source(tmp_path / "empty.txt")
    (tmp_path / "model.bin").write_bytes(bytes(100))
    with pytest.raises(UserError, match=r"not a text file \(line 1\)"):
        open_source(tmp_path / "model.bin")


def test_an_unreadable_picture_of_a_list_is_told_with_its_line(tmp_path):
    save(tmp_path / "a.png")
    (tmp_path / "list.txt").write_text("a.png\n\nnowhere.png\n")
    source = open_source(tmp_path / "list.txt")
    with pytest.raises(BadPicture, match=r"No such file.*\(line 3 of list.txt\)"):
        source.read(1)
    (tmp_path / "list.txt").write_text("a.png\tcat\n\tdog\n")
    with pytest.raises(UserError, match=r"list.txt, line 2: a label without a path"):
        open_source(tmp_path / "list.txt")


def test_npz_keeps_five_channels_and_names_string_labels(tmp_path):
    images = RNG.integers(0, 256, (4, 6, 7, 5), dtype=np.uint8)
    np.savez(tmp_path / "five.npz", images=images, labels=np.array(["b", "a", "b", "c"]))
    source = open_source(tmp_path / "five.npz")
    assert source.channels == 5
    assert np.array_equal(source.read(2), images[2])
    assert source.read(2, short_side=3).shape == (3, 4, 5)
    assert source.labels.tolist() == [1, 0, 1, 2]
    assert source.classes == ["a", "b", "c"]
    with pytest.raises(UserError, match="5 channels; they cannot become 3"):
        open_source(tmp_path / "five.npz", channels=3)


def test_grey_npz_has_one_channel_unless_three_are_asked_for(tmp_path):
    images = RNG.integers(0, 256, (4, 6, 7), dtype=np.uint8)
    np.savez_compressed(tmp_path / "grey.npz", images=images, labels=np.array([3, 0, 1, 1]))
    source = open_source(tmp_path / "grey.npz")
    assert np.array_equal(source.read(1), images[1][:, :, None])
    assert source.labels.tolist() == [3, 0, 1, 1]
    colour = open_source(tmp_path / "grey.npz", channels=3).read(1)
    assert np.array_equal(colour, np.repeat(images[1][:, :, None], 3, axis=2))
    np.savez(tmp_path / "grey.npz", images=images + 1, labels=np.array([3, 0, 1, 1]))
    assert open_source(tmp_path / "grey.npz").fingerprint != source.fingerprint


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"pictures": photo(), "y": photo()}, "no array named `images`; its arrays are `pictures`"),
        ({"images": np.zeros((2, 3, 3))}, "must be uint8"),
        ({"images": np.zeros((0, 3, 3), np.uint8)}, r"found uint8 of shape \(0, 3, 3\)"),
        ({"images": photo(), "labels": np.zeros(2, int)}, "6 images but labels of shape"),
        ({"images": photo(), "labels": -np.ones(6, int)}, "must not be negative"),
        ({"images": photo(), "labels": np.ones(6)}, "whole numbers or strings"),
    ],
)
def test_npz_mistakes_are_named(tmp_path, arrays, message):
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(UserError, match=message):
        open_source(tmp_path / "x.npz")


def test_digits_are_split_in_proportion_once_and_for_all():
    whole, train, test = (
        open_source(f"builtin://digits{part}") for part in ("", "/train", "/test")
    )
    assert (len(whole), len(train), len(test)) == (1797, 1297, 500)
    per_class = np.bincount(whole.labels) * 500 / 1797
    assert np.abs(np.bincount(test.labels) - per_class).max() < 1
    together = sorted(np.concatenate([train.images, test.images]).reshape(1797, -1).tolist())
    assert together == sorted(whole.images.reshape(1797, -1).tolist())
    assert (whole.read(0).shape, whole.images.min(), whole.images.max()) == ((8, 8, 1), 0, 255)
    assert test.labels[:10].tolist() == [0, 3, 4, 5, 9, 4, 6, 1, 5, 0]
    assert test.images.sum() == 2504322


# Decoding


@pytest.mark.parametrize("ending", ["png", "bmp", "tiff", "webp"])
def test_lossless_files_come_back_exactly(tmp_path, ending):
    pixels = photo()
    save(tmp_path / f"x.{ending}", pixels, **({"lossless": True} if ending == "webp" else {}))
    assert np.array_equal(only(tmp_path), pixels)


def test_a_grey_only_source_has_one_channel_and_a_mixed_one_three(tmp_path):
    grey = photo(channels=1)
    save(tmp_path / "grey.png", grey)
    assert np.array_equal(only(tmp_path), grey[:, :, None])
    assert np.array_equal(only(tmp_path, channels=3), np.stack([grey] * 3, axis=2))
    save(tmp_path / "colour.png")
    source = open_source(tmp_path)
    assert source.channels == 3
    assert np.array_equal(source.read(1), np.stack([grey] * 3, axis=2))


def test_exif_orientation_is_applied(tmp_path):
    pixels = photo()
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate a quarter clockwise to see it upright
    save(tmp_path / "turned.png", pixels, exif=exif)
    assert np.array_equal(only(tmp_path), np.rot90(pixels, -1))


def test_alpha_is_laid_on_white(tmp_path):
    pixels = photo(channels=4)
    save(tmp_path / "alpha.png", pixels)
    alpha = pixels[:, :, 3:] / 255
    expected = pixels[:, :, :3] * alpha + 255 * (1 - alpha)
    assert np.abs(only(tmp_path) - expected).max() <= 1


def test_a_transparent_palette_is_laid_on_white(tmp_path):
    image = Image.fromarray(np.array([[0, 1, 2]], np.uint8), "P")
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    image.save(tmp_path / "palette.png", transparency=1)
    assert only(tmp_path).tolist() == [[[10, 20, 30], [255, 255, 255], [70, 80, 90]]]


@pytest.mark.parametrize("ending", ["png", "tif", "bmp"])
def test_a_grey_palette_counts_as_grey_and_another_does_not(tmp_path, ending):
    image = Image.fromarray(np.array([[0, 1]], np.uint8), "P")
    for blue, expected in ((200, [[[7], [200]]]), (90, [[[7, 7, 7], [200, 200, 90]]])):
        image.putpalette([7, 7, 7, 200, 200, blue])
        image.save(tmp_path / f"palette.{ending}")
        assert only(tmp_path).tolist() == expected


def test_sixteen_bits_of_full_range_are_divided_by_257(tmp_path):
    values = np.array([[0, 257, 257 * 128, 65535]], np.uint16)
    save(tmp_path / "deep.png", values)
    assert only(tmp_path)[0, :, 0].tolist() == [0, 1, 128, 255]


def test_twelve_bit_values_share_the_white_level_of_their_source(tmp_path):
    save(tmp_path / "1.tif", np.array([[0, 4095]], np.uint16))
    save(tmp_path / "2.tif", np.array([[0, 300]], np.uint16))
    source = open_source(tmp_path)
    assert source.read(0)[0, :, 0].tolist() == [0, 255]
    assert source.read(1)[0, :, 0].tolist() == [0, round(300 * 255 / 4095)]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("depth", [8, 16])
@pytest.mark.parametrize("layout", ["interleaved", "planar", "deflated", "differenced"])
def test_a_tiff_of_five_bands_keeps_them(tmp_path, order, depth, layout):
    white = 2**depth - 1
    bands = RNG.integers(0, white + 1, (4, 6, 5))
    bands[0, 0] = white
    (tmp_path / "five.tif").write_bytes(five_band_tiff(bands, order, depth, layout))
    read = only(tmp_path)
    assert read.shape == (4, 6, 5)
    assert np.abs(read - bands * 255 / white).max() <= 0.51


def five_band_tiff(bands: np.ndarray, order: str, depth: int, layout: str) -> bytes:
    """A file written field by field from the TIFF 6.0 specification."""
    height, width, samples = bands.shape
    if layout == "differenced":
        bands = np.diff(bands, axis=1, prepend=0) % 2**depth
    ordered = bands.transpose(2, 0, 1) if layout == "planar" else bands
    raw = ordered.astype(f"{order}u{depth // 8}").tobytes()
    strips = [raw]
    if layout == "planar":
        plane = len(raw) // samples
        strips = [raw[i : i + plane] for i in range(0, len(raw), plane)]
    compressed = layout in ("deflated", "differenced")
    strips = [zlib.compress(strip) for strip in strips] if compressed else strips
    starts = np.cumsum([8, *map(len, strips)])
    fields = {
        256: [width],
        257: [height],
        258: [depth] * samples,
        259: [8 if compressed else 1],
        262: [1],
        273: starts[:-1].tolist(),
        277: [samples],
        278: [height],
        279: list(map(len, strips)),
        284: [2 if layout == "planar" else 1],
        317: [2 if layout == "differenced" else 1],
    }
    at = int(starts[-1])
    extra_at, extra = at + 2 + 12 * len(fields) + 4, b""
    directory = struct.pack(order + "H", len(fields))
    for tag, values in fields.items():
        packed = struct.pack(f"{order}{len(values)}L", *values)
        if len(values) > 1:
            packed, extra = struct.pack(order + "L", extra_at + len(extra)), extra + packed
        directory += struct.pack(order + "HHL", tag, 4, len(values)) + packed
    magic = b"II*\0" if order == "<" else b"MM\0*"
    return magic + struct.pack(order + "L", at) + b"".join(strips) + directory + bytes(4) + extra


def test_grey_pages_of_a_tiff_are_channels(tmp_path):
    pages = [photo(channels=1) for _ in range(4)]
    first, *others = (Image.fromarray(page) for page in pages)
    first.save(tmp_path / "pages.tif", save_all=True, append_images=others)
    assert np.array_equal(only(tmp_path), np.stack(pages, axis=2))


def test_a_wanted_short_side_shrinks_as_pillow_does_and_never_enlarges(tmp_path):
    pixels = smooth(60, 90)
    save(tmp_path / "x.png", pixels)
    source = open_source(tmp_path)
    expected = Image.fromarray(pixels).resize((48, 32), Image.Resampling.BICUBIC)
    apart = np.abs(source.read(0, short_side=32).astype(int) - np.asarray(expected).astype(int))
    assert apart.max() <= 2
    assert (apart > 0).mean() < 0.02
    assert np.array_equal(source.read(0, short_side=61), pixels)


def test_scaled_jpeg_decoding_stays_close_to_the_full_one(tmp_path):
    save(tmp_path / "x.jpg", smooth(900, 1300), quality=95)
    with Image.open(tmp_path / "x.jpg") as full:
        expected = full.convert("RGB").resize((144, 100), Image.Resampling.BICUBIC)
    read = open_source(tmp_path).read(0, short_side=100)
    assert read.shape == (100, 144, 3)
    assert np.abs(read.astype(int) - np.asarray(expected)).mean() < 1


def test_scaled_jpeg_decoding_keeps_texture_too(tmp_path):
    noisy = smooth(900, 1300) + RNG.normal(0, 20, (900, 1300, 3))
    noisy[::50], noisy[:, ::70] = 255, 0  # thin lines, the worst for averaged blocks
    save(tmp_path / "x.jpg", noisy.clip(0, 255).astype(np.uint8), quality=90)
    for short_side, size in ((256, (370, 256)), (100, (144, 100))):
        with Image.open(tmp_path / "x.jpg") as full:
            expected = full.convert("RGB").resize(size, Image.Resampling.BICUBIC)
        apart = open_source(tmp_path).read(0, short_side) - np.asarray(expected, float)
        assert np.sqrt((apart**2).mean()) < 3  # of 255


def test_a_panorama_keeps_its_middle_when_shrunk(tmp_path):
    pixels = smooth(10, 100)
    save(tmp_path / "x.png", pixels)
    source = open_source(tmp_path)
    assert np.array_equal(source.read(0, short_side=10), pixels[:, 30:70])
    assert np.array_equal(source.read(0), pixels)


def test_broken_files_raise_a_reason_in_words_and_not_in_pythons(tmp_path):
    whole = save(tmp_path / "whole.png", photo(50, 50)).read_bytes()
    (tmp_path / "cut.png").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "noise.jpg").write_bytes(RNG.bytes(500))
    (tmp_path / "empty.tif").touch()
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    source = open_source(tmp_path)
    assert names(source) == ["cut.png", "empty.tif", "gone.png", "noise.jpg", "whole.png"]
    reasons = ["cut short", "an empty file", "No such file .*", "no picture that Pillow knows"]
    for i, reason in enumerate(reasons):
        with pytest.raises(BadPicture, match=f"^{reason}$"):
            source.read(i)
        with pytest.raises(BadPicture, match=f"^{reason}$"):
            source.read(i, short_side=20)
    assert source.read(4).shape == (50, 50, 3)


def test_worker_processes_return_the_same_in_the_same_order(tmp_path):
    for i in range(40):
        save(tmp_path / f"{i:02d}.png", photo(10 + i, 50))
    (tmp_path / "07.png").write_bytes(b"broken")
    source = open_source(tmp_path)
    indices = [*range(39, -1, -1), 3, 3, 7]
    here = list(decode_many(source, indices, 20, workers=0))
    there = list(decode_many(source, indices, 20, workers=2))
    assert [index for index, _ in there] == indices
    for (_, one), (_, other) in zip(here, there, strict=True):
        if isinstance(one, BadPicture):
            assert str(one) == str(other)
        else:
            assert np.array_equal(one, other)


def labelled_folder(folder, strays, per_class=4):
    for name in [f"{c}/{i}" for c in ("cat", "dog") for i in range(per_class)] + strays:
        path = folder / f"{name}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (4, 4)).save(path)
    return open_source(folder)


def test_strays_beside_class_folders_cost_the_labels_and_are_named(tmp_path):
    assert labelled_folder(tmp_path / "none", []).note is None
    one = labelled_folder(tmp_path / "one", ["stray"])
    assert one.labels is None
    assert "stray.png lies beside the sub-folders" in one.note
    assert "move it into one, or away" in one.note
    four = labelled_folder(tmp_path / "four", ["s1", "s2", "s3", "s4"], per_class=9)
    assert "s1.png, s2.png, s3.png and 1 more lie beside" in four.note
    assert "move them into one" in four.note


def test_pictures_of_endings_that_are_not_read_are_told_of_also_from_a_kept_index(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("wessl.data.sources.names.KEEP_INDEX_FROM", 1)
    folder = tmp_path / "photos"
    assert labelled_folder(folder, []).passed_over is None
    for name in ("cat/a.HEIC", "cat/b.heic", "c.gif", "notes.txt", ".hidden.heic"):
        (folder / name).touch()
    for _ in range(2):
        found = open_source(folder, directory=tmp_path / "cache").passed_over
        assert found.endswith(" are read: 2 .heic, 1 .gif")


def test_a_folder_of_mostly_loose_pictures_needs_no_word_about_labels(tmp_path):
    assert labelled_folder(tmp_path, [f"s{i}" for i in range(20)]).note is None


def test_folders_named_train_and_test_are_parts_and_not_classes(tmp_path):
    for part in ("train", "Test"):
        for kind in ("cat", "dog"):
            (tmp_path / part / kind).mkdir(parents=True)
            Image.new("L", (8, 8)).save(tmp_path / part / kind / "a.png")
    source = open_source(tmp_path)
    assert source.labels is None
    assert source.classes is None
    assert "parts of a data set and not classes" in source.note
    assert source.note.endswith(f"give {tmp_path / 'train'}")
    assert open_source(tmp_path / "train").classes == ["cat", "dog"]


# file:// URLs


def test_a_file_url_means_what_its_path_means(tmp_path):
    folder = tmp_path / "50% my photos"
    for name in ("cat/1.png", "dog/2.png"):
        save(folder / name)
    (folder / "list.txt").write_text("cat/1.png\n")
    np.savez(folder / "arrays.npz", images=np.zeros((3, 4, 4), np.uint8))
    for path in (folder, folder / "list.txt", folder / "arrays.npz"):
        source = open_source(path)
        encoded = path.as_uri()
        assert "%20" in encoded
        for url in (encoded, f"file://{path}", encoded.replace("file://", "file://localhost")):
            opened = open_source(url)
            assert opened.location == source.location
            assert opened.fingerprint == source.fingerprint
    assert open_source(f"{folder.as_uri()}/").classes == ["cat", "dog"]


def test_a_file_url_that_names_nothing_here_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"nowhere does not exist.*a folder of pictures"):
        open_source(f"file://{tmp_path}/nowhere")
    for url in ("file://photos/", "file://photos"):
        with pytest.raises(UserError, match=r"three slashes.* photos stands where .* the path"):
            open_source(url)
