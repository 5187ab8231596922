"""`wessl pack`: what went in comes out, the same in names and labels, whatever happens between."""

import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from shard_tools import numbered_shards

import wessl
from wessl.data.decoding.bad_pictures import ShardLost
from wessl.data.packing.shard import Member, write_shard
from wessl.data.sources.open import Source, open_source
from wessl.errors import Failure, UserError
from wessl.verbs.pack import Packed

RNG = np.random.default_rng(0)


def smooth(height: int, width: int, channels: int = 3) -> np.ndarray:
    small = RNG.integers(0, 256, (5, 6, channels), dtype=np.uint8)
    bands = [
        np.asarray(
            Image.fromarray(small[:, :, c]).resize((width, height), Image.Resampling.BICUBIC)
        )
        for c in range(channels)
    ]
    return np.stack(bands, axis=2)


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """Two classes; small and large; awkward names; one file that is no picture."""
    folder = tmp_path_factory.mktemp("photos")
    for i in range(10):
        path = folder / ("cat" if i % 2 else "dog") / f"my.photo {i}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(smooth(40 + 30 * (i % 3), 60 + 30 * (i % 3))).save(path, quality=95)
    Image.fromarray(smooth(90, 70)).save(folder / "cat" / "my.png")
    Image.fromarray(smooth(90, 70)).save(folder / "cat" / "my.webp")
    Image.fromarray(smooth(30, 30)).save(folder / "dog" / "grüße.bmp")
    (folder / "dog" / "broken.jpg").write_bytes(b"not a picture")
    return folder


def by_name(source: Source) -> dict[str, tuple[str, np.ndarray]]:
    return {
        source.name(i): (source.classes[source.labels[i]], source.read(i, 64))
        for i in range(len(source))
    }


def readable(folder: Path) -> dict[str, tuple[str, np.ndarray]]:
    source = open_source(folder)
    indices = [i for i in range(len(source)) if "broken" not in source.name(i)]
    return {source.name(i): (source.classes[source.labels[i]], source.read(i, 64)) for i in indices}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


@pytest.mark.parametrize("workers", [0, 2])
def test_names_labels_and_pictures_survive(photos, tmp_path, workers):
    out = tmp_path / "shards"
    packed = wessl.pack(photos, out, short_side=64, per_shard=4, workers=workers, max_bad=0.2)
    assert (packed.pictures, packed.shards) == (13, 4)
    assert [name for name, _ in packed.skipped] == ["dog/broken.jpg"]
    assert (out / "skipped.txt").read_text().startswith("dog/broken.jpg\t")
    for form in (out, out / "shard-*.tar", out / "shard-{000000..000003}.tar"):
        found, expected = by_name(open_source(str(form))), readable(photos)
        assert found.keys() == expected.keys()
        for name, (label, pixels) in expected.items():
            assert found[name][0] == label
            assert found[name][1].shape == pixels.shape
            apart = np.abs(found[name][1].astype(int) - pixels.astype(int)).mean()
            assert apart < (3 if name.endswith(("jpg", "webp")) else 1e-9), name


def test_small_pictures_keep_their_bytes_and_large_ones_are_shrunk(photos, tmp_path):
    wessl.pack(photos, tmp_path / "s", short_side=64, max_bad=0.2, workers=0)
    plain, packed = open_source(photos), open_source(tmp_path / "s")
    at = {plain.name(i): i for i in range(len(plain))}
    for i in range(len(packed)):
        original = plain.encoded(at[packed.name(i)])
        with Image.open(io.BytesIO(original)) as image:
            small = min(image.size) <= 64
        assert (packed.encoded(i) == original) == small
        assert min(packed.read(i).shape[:2]) <= 64


def test_a_shard_is_what_webdataset_expects(photos, tmp_path):
    wessl.pack(photos, tmp_path / "s", max_bad=0.2, workers=0)
    with tarfile.open(tmp_path / "s" / "shard-000000.tar") as tar:
        members = {m.name: tar.extractfile(m).read() for m in tar.getmembers()}
    keys = {name.partition(".")[0] for name in members}
    classes = json.loads((tmp_path / "s" / "classes.json").read_text())
    assert len(keys) == 13
    for key in keys:
        about = json.loads(members[f"{key}.json"])
        assert classes[int(members[f"{key}.cls"])] == about["name"].split("/")[0]
        endings = {name.partition(".")[2] for name in members if name.startswith(key)}
        assert endings - {"cls", "json"} <= {"jpg", "png", "webp", "bmp"}


def test_the_index_beside_the_shards_saves_reading_them(photos, tmp_path):
    out = tmp_path / "s"
    wessl.pack(photos, out, per_shard=5, max_bad=0.2, workers=0)
    beside = open_source(out, directory=tmp_path / "keep")
    assert not (tmp_path / "keep").exists()
    (out / "index.npz").unlink()
    scanned = open_source(out, directory=tmp_path / "keep")
    assert list((tmp_path / "keep").glob("shards-*.npz"))
    assert scanned.fingerprint == beside.fingerprint
    assert scanned.classes == beside.classes == ["cat", "dog"]
    assert np.array_equal(scanned.labels, beside.labels)
    assert scanned.channels == beside.channels


def test_an_index_that_is_not_of_these_shards_is_not_believed(photos, tmp_path):
    out = tmp_path / "s"
    wessl.pack(photos, out, per_shard=5, max_bad=0.2, workers=0)
    shard = out / "shard-000001.tar"
    with tarfile.open(shard, "a") as tar:
        tar.add(photos / "cat" / "my.png", "another.png")
    source = open_source(out, directory=tmp_path / "keep")
    assert len(source) == 14


def bitmaps(folder: Path, classes: dict[str, int]) -> Path:
    """Two pictures a class, all of one size in bytes, in the class's shade of grey."""
    for name, shade in classes.items():
        (folder / name).mkdir(parents=True)
        for i in range(2):
            Image.new("RGB", (16, 16), (shade,) * 3).save(folder / name / f"{i}.bmp")
    return folder


@pytest.mark.parametrize("ahead", [False, True])
def test_a_shard_put_in_place_of_another_is_not_read_by_the_old_index(tmp_path, ahead):
    for name, shades in (("a", (10, 20)), ("b", (30, 40))):
        photos = bitmaps(tmp_path / name, dict(zip(("cat", "dog"), shades, strict=True)))
        wessl.pack(photos, tmp_path / f"packed-{name}", workers=0)
    old, new = (tmp_path / f"packed-{name}" / "shard-000000.tar" for name in "ab")
    assert old.stat().st_size == new.stat().st_size
    os.replace(new, old)
    source = open_source(old.parent)
    if ahead:
        source.prefetch(range(4))
    for i in range(4):
        with pytest.raises(ShardLost, match=r"changed since it was indexed; remove .*index\.npz"):
            source.read(i)
    (old.parent / "index.npz").unlink()
    source = open_source(old.parent, directory=tmp_path / "keep")
    assert {int(source.read(i)[0, 0, 0]) for i in range(4)} == {30, 40}


CREATURES = {"ant": 1, "cat": 2, "dog": 3}


@pytest.fixture
def two_packs(tmp_path) -> Path:
    """`pa` with cats and dogs, `pb` with ants and cats: in both `.cls` are 0 and 1."""
    for name, classes in (("a", ("cat", "dog")), ("b", ("ant", "cat"))):
        photos = bitmaps(tmp_path / name, {c: CREATURES[c] for c in classes})
        wessl.pack(photos, tmp_path / f"p{name}", workers=0)
    return tmp_path


@pytest.mark.parametrize("bare", [False, True])
def test_shards_of_two_packs_are_labelled_by_name(two_packs, bare):
    if bare:  # tar files alone, as others copy them
        for name in ("classes.json", "index.npz"):
            (two_packs / "pa" / name).unlink()
            (two_packs / "pb" / name).unlink()
    source = open_source(str(two_packs / "p{a,b}/shard-*.tar"), directory=two_packs / "keep")
    assert source.classes == ["ant", "cat", "dog"]
    for i in range(8):
        assert CREATURES[source.classes[source.labels[i]]] == source.read(i)[0, 0, 0]


def test_named_and_numbered_shards_together_have_no_labels_and_it_is_said(two_packs):
    numbered_shards(two_packs / "pc", [4])
    source = open_source(str(two_packs / "p{a,c}/shard-*.tar"), directory=two_packs / "keep")
    assert source.labels is None
    assert "some shards name their classes and others only number them" in source.note


def test_class_names_that_are_numbers_stay_names(tmp_path):
    photos = bitmaps(tmp_path / "photos", {"2": 2, "10": 10})
    wessl.pack(photos, tmp_path / "s", workers=0)
    (tmp_path / "s" / "index.npz").unlink()
    source = open_source(tmp_path / "s", directory=tmp_path / "keep")
    assert source.classes == open_source(photos).classes == ["10", "2"]
    named = [int(source.classes[label]) for label in source.labels]
    assert named == [int(source.read(i)[0, 0, 0]) for i in range(4)]


@pytest.mark.parametrize("shuffle", [True, False])
def test_the_order_is_random_unless_asked_for(tmp_path, shuffle):
    wessl.pack("builtin://digits/test", tmp_path / "s", shuffle=shuffle, workers=0)
    digits, packed = open_source("builtin://digits/test"), open_source(tmp_path / "s")
    names = [packed.name(i) for i in range(500)]
    assert (names == [digits.name(i) for i in range(500)]) == (not shuffle)
    number = [int(name.rpartition("[")[2][:-1]) for name in names]
    assert np.array_equal(packed.labels, digits.labels[number])
    assert all(np.array_equal(packed.read(i), digits.read(number[i])) for i in range(0, 500, 25))


def test_more_bands_than_pictures_have_survive_shrinking(tmp_path):
    images = np.stack([smooth(30, 40, 5) for _ in range(3)])
    np.savez(tmp_path / "bands.npz", images=images)
    wessl.pack(tmp_path / "bands.npz", tmp_path / "s", short_side=12, shuffle=False, workers=0)
    plain, packed = open_source(tmp_path / "bands.npz"), open_source(tmp_path / "s")
    assert packed.channels == 5
    assert all(np.array_equal(packed.read(i), plain.read(i, 12)) for i in range(3))


def test_shards_can_be_packed_again(photos, tmp_path):
    wessl.pack(photos, tmp_path / "a", short_side=None, max_bad=0.2, workers=0)
    wessl.pack(tmp_path / "a", tmp_path / "b", short_side=None, per_shard=3, workers=0)
    first, second = by_name(open_source(tmp_path / "a")), by_name(open_source(tmp_path / "b"))
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[name][1], second[name][1]) for name in first)


PACKER = """
import sys
def progress(done, total):
    print(done, flush=True)
from wessl.data.packing.pack import pack_source
from wessl.data.packing.folder import Request
from wessl.data.sources.open import open_source
from pathlib import Path
source = open_source("builtin://digits/test")
request = Request(source.location, source.fingerprint, 500, 256, 90, 50, True)
pack_source(source, Path(sys.argv[1]), request, 0, 0.05, progress)
"""


def test_a_killed_pack_goes_on_where_it_was_and_ends_the_same(tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    wessl.pack("builtin://digits/test", whole, per_shard=50, workers=0)
    process = subprocess.Popen(
        [sys.executable, "-c", PACKER, str(cut)], stdout=subprocess.PIPE, text=True
    )
    for line in process.stdout:
        if int(line) >= 230:
            os.kill(process.pid, signal.SIGKILL)
            break
    process.communicate()
    kept = {path.name: path.stat().st_mtime_ns for path in cut.glob("shard-*.tar")}
    assert 1 <= len(kept) < 10
    with pytest.raises(UserError, match="made with per_shard 50, not 51"):
        wessl.pack("builtin://digits/test", cut, per_shard=51)
    (cut / ".shard-000009.tar.part").write_bytes(b"half")
    wessl.pack("builtin://digits/test", cut, per_shard=50, workers=0)
    assert contents(cut) == contents(whole)
    finished = sorted(kept)[:-1]  # the last may have been cut off before its line was written
    assert all((cut / name).stat().st_mtime_ns == kept[name] for name in finished)
    before = contents(cut)
    times = {path.name: path.stat().st_mtime_ns for path in cut.iterdir()}
    again = wessl.pack("builtin://digits/test", cut, per_shard=50)
    assert again.pictures == 500
    assert contents(cut) == before
    assert {path.name: path.stat().st_mtime_ns for path in cut.iterdir()} == times


@pytest.mark.parametrize("damage", ["missing", "cut", "index", "skipped"])
def test_a_packed_folder_that_lost_something_is_made_whole_again(photos, tmp_path, damage):
    out = tmp_path / "s"

    def pack() -> Packed:
        return wessl.pack(photos, out, per_shard=4, workers=0, max_bad=0.1)

    before = pack(), contents(out)
    times = {path.name: path.stat().st_mtime_ns for path in out.glob("shard-*.tar")}
    for shard in sorted(times)[1:]:  # one of them lacks the broken picture, which counts once
        if damage == "missing":
            (out / shard).unlink()
        elif damage == "cut":
            os.truncate(out / shard, 1024)
    if damage in ("index", "skipped"):
        (out / {"index": "index.npz", "skipped": "skipped.txt"}[damage]).unlink()
    assert (pack(), contents(out)) == before
    first = out / min(times)
    assert first.stat().st_mtime_ns == times[first.name]


def test_shards_are_not_thrown_away_where_nothing_tells_whether_they_are_whole(tmp_path):
    wessl.pack("builtin://digits/test", tmp_path / "s", workers=0)
    (tmp_path / "s" / "pack.jsonl").unlink()
    before = contents(tmp_path / "s")
    with pytest.raises(UserError, match=r"pack\.jsonl.* is missing"):
        wessl.pack("builtin://digits/test", tmp_path / "s", workers=0)
    assert contents(tmp_path / "s") == before


def test_others_files_are_never_touched(tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(UserError, match=r"not empty \(it holds precious.txt\)"):
        wessl.pack("builtin://digits/test", tmp_path)
    assert contents(tmp_path) == {"precious.txt": b"mine"}


def test_two_packs_do_not_work_in_one_folder(tmp_path):
    import fcntl

    (tmp_path / "s").mkdir()
    held = os.open(tmp_path / "s", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(UserError, match="another wessl pack is at work"):
        wessl.pack("builtin://digits/test", tmp_path / "s")
    os.close(held)


def test_too_many_unreadable_pictures_stop_it(photos, tmp_path):
    with pytest.raises(Failure, match=r"dog/broken\.jpg"):
        wessl.pack(photos, tmp_path / "s", workers=0)


def test_a_shard_that_rots_while_it_is_written_is_not_kept(photos, tmp_path):
    path = tmp_path / "rotten.tar"
    file = (photos / "cat" / "my.png").read_bytes()

    def members() -> Iterator[Member]:
        for i in range(50):
            yield Member(str(i), file, ".png", f"{i}.png", None)
        with path.open("r+b") as disk:
            disk.seek(600)
            disk.write(b"rot")

    with pytest.raises(Failure, match="does not hold what was written"):
        write_shard(path, members())


@pytest.mark.parametrize(
    ("flag", "wrong"),
    [("quality", 0), ("quality", 101), ("short_side", 0), ("per_shard", 0), ("workers", -1)],
)
def test_wrong_numbers_are_refused_by_the_flags_name(tmp_path, flag, wrong):
    with pytest.raises(UserError, match="--" + flag.replace("_", "-")):
        wessl.pack("builtin://digits", tmp_path / "s", **{flag: wrong})


def test_the_command_tells_what_it_wrote_and_what_it_skipped(photos, tmp_path):
    words = ["pack", str(photos), "--out", str(tmp_path / "s"), "--short-side", "64"]
    done = subprocess.run(
        [sys.executable, "-m", "wessl", *words, "--max-bad", "1", "--workers", "0"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "13 pictures in 1 shard," in done.stdout
    assert "1 unreadable, listed in" in done.stdout
    assert "dog/broken.jpg" in done.stdout
