"""Tar shards as DATA: what is found in them, by which names, and that it can be kept."""

import io
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from shard_tools import number, numbered_shards, png, tar

from wessl.data.cache.build import build_cache
from wessl.data.decoding.bad_pictures import BadPicture, ShardLost
from wessl.data.loading.loader import Loader
from wessl.data.loading.order import GROUP, RUN, epoch_order
from wessl.data.sources.open import open_source
from wessl.data.sources.shards.names import expand_braces
from wessl.data.sources.shards.source import ShardSource
from wessl.data.sources.source import Subset
from wessl.data.workers.many import decode_many
from wessl.errors import UserError

COUNTS = (7, 10, 5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return numbered_shards(tmp_path_factory.mktemp("shards"), COUNTS)


def members_by_tarfile(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as file:
        return {m.name: file.extractfile(m).read() for m in file.getmembers() if m.isfile()}


@pytest.mark.parametrize("form", ["shard-*.tar", "shard-{0..2}.tar", "shard-{0,1,2}.tar", ""])
def test_shards_open_by_glob_range_list_and_folder(folder, form):
    source = open_source(str(folder / form))
    assert len(source) == 22
    assert source.blocks.tolist() == list(COUNTS)
    assert [number(source.read(i)) for i in range(22)] == list(range(22))
    assert source.labels.tolist() == [i % 3 for i in range(22)]
    assert source.name(8) == "shard-1.tar/00008.png"


def test_bytes_are_those_that_tarfile_finds(folder):
    source = open_source(folder / "shard-*.tar")
    for i in range(22):
        shard, member = source.name(i).split("/")
        assert source.encoded(i) == members_by_tarfile(folder / shard)[member]


def test_some_of_the_shards_and_in_another_order(folder):
    source = open_source(str(folder / "shard-{2,0}.tar"))
    expected = [*range(17, 22), *range(7)]
    assert [number(source.read(i)) for i in range(12)] == expected


def test_fetching_ahead_changes_nothing(folder):
    source = open_source(folder / "shard-*.tar")
    wanted = [21, 3, 4, 5, 16, 17, 3, 0]
    source.prefetch(wanted)
    assert [number(source.read(i)) for i in wanted] == wanted


@pytest.mark.parametrize("workers", [0, 2])
def test_worker_processes_read_shards_too(folder, workers):
    source = open_source(folder / "shard-*.tar")
    wanted = [5, 6, 7, 20, 1, 0, 9, 9, 11, 21, 3]
    found = list(decode_many(source, wanted, None, workers))
    assert [index for index, _ in found] == wanted
    assert [number(pixels) for _, pixels in found] == wanted


def test_secondary_pictures_folders_and_foreign_members_are_left_out(tmp_path):
    tar(
        tmp_path / "a.tar",
        [
            ("cats/1.jpg.txt", b"no picture"),
            ("cats/1.png", png(1)),
            ("cats/1.mask.png", png(900)),
            ("cats/1.caption.txt", b"a cat"),
            ("cats.old/2.PNG", png(2)),
            ("left/3.left.png", png(3)),
            ("left/3.right.png", png(4)),
        ],
    )
    source = open_source(tmp_path / "a.tar")
    assert [number(source.read(i)) for i in range(len(source))] == [1, 2, 3, 4]
    assert source.labels is None


def test_labels_may_be_words_and_must_be_there_for_all(tmp_path):
    words = [("1.png", png(1)), ("1.cls", b"dog\n"), ("2.png", png(2)), ("2.cls", b"cat")]
    source = open_source(tar(tmp_path / "words.tar", words))
    assert [source.classes[i] for i in source.labels] == ["dog", "cat"]
    source = open_source(tar(tmp_path / "some.tar", [*words, ("3.png", png(3))]))
    assert source.labels is None
    assert source.note == "no labels: 1 of 3 pictures have none"


def test_long_names_links_and_other_formats_of_tar_are_understood(tmp_path):
    long = "/".join(["a-rather-long-folder-name"] * 8)
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        path = tmp_path / f"{form}.tar"
        with tarfile.open(path, "w", format=form) as file:
            link = tarfile.TarInfo("link.png")
            link.type, link.linkname = tarfile.SYMTYPE, "elsewhere.png"
            file.addfile(link)
            info = tarfile.TarInfo(f"{long}/grüße.png")
            info.size = len(png(5))
            file.addfile(info, io.BytesIO(png(5)))
        source = open_source(path)
        assert source.name(0) == f"{form}.tar/{long}/grüße.png"
        assert number(source.read(0)) == 5


def test_a_shard_cut_off_in_the_middle_gives_what_is_whole(tmp_path, folder):
    content = (folder / "shard-1.tar").read_bytes()
    starts = open_source(folder / "shard-1.tar").index.starts
    (tmp_path / "cut.tar").write_bytes(content[: starts[6] + 20])
    source = open_source(tmp_path / "cut.tar")
    assert [number(source.read(i)) for i in range(len(source))] == list(range(7, 13))
    assert "cut off in the middle" in source.note


HEADER = tarfile.BLOCKSIZE


@pytest.mark.parametrize("damage", ["header", "boundary", "half", "ff", "zeros", "label"])
def test_a_damaged_shard_gives_what_is_whole_before_and_says_so(tmp_path, damage):
    members = []
    for i in range(40):
        members += [(f"{i:03}.png", png(i)), (f"{i:03}.cls", str(i % 3).encode())]
    path = tar(tmp_path / "shard.tar", members)
    content = path.read_bytes()
    with tarfile.open(path) as file:
        picture, label = (file.getmember(f"020.{ending}").offset for ending in ("png", "cls"))
        ends = [file.getmember(f"{i:03}.cls").offset_data + 1 for i in range(40)]
    broken = {
        "header": content[: picture + 100],
        "boundary": content[:picture],
        "half": content[: len(content) // 2],
        "ff": content[:picture] + b"\xff" * HEADER + content[picture + HEADER :],
        "zeros": content[:picture] + b"\0" * HEADER + content[picture + HEADER :],
        "label": content[:label],
    }
    path.write_bytes(broken[damage])
    source = open_source(path, directory=tmp_path / "keep")
    whole = sum(end <= (len(content) // 2 if damage == "half" else picture) for end in ends)
    assert whole - 1 <= len(source) <= whole  # of the last one nobody knows whether it is all there
    assert [number(source.read(i)) for i in range(len(source))] == list(range(len(source)))
    assert source.labels.tolist() == [i % 3 for i in range(len(source))]
    assert "damaged or cut off in the middle" in source.note
    assert str(path) in source.note


def test_a_shard_that_ends_as_tar_files_end_is_not_called_damaged(tmp_path):
    for count in (1, 3, 5, 7):  # the filling up to a multiple of 10,240 bytes differs
        path = tar(tmp_path / f"{count}.tar", [(f"{i}.png", png(i, 40, 40)) for i in range(count)])
        source = open_source(path, directory=tmp_path / "keep")
        assert (len(source), source.note) == (count, None)


@pytest.mark.parametrize(
    ("ending", "content", "label"),
    [
        ("cls", "²".encode(), "²"),
        ("cls", b"1" * 23, "1" * 23),
        ("json", b'{"label": %s}' % (b"1" * 23), "1" * 23),
        ("json", b'{"packed_by": "wessl", "name": 5, "class": "cat"}', "cat"),
    ],
)
def test_strange_labels_of_others_are_words(tmp_path, ending, content, label):
    members = [("1.png", png(1)), (f"1.{ending}", content)]
    source = open_source(tar(tmp_path / "x.tar", members), directory=tmp_path / "keep")
    assert source.classes == [label]
    assert source.name(0) == "x.tar/1.png"


def test_words_that_are_numbers_go_together_with_other_words(tmp_path):
    tar(
        tmp_path / "a.tar", [("1.png", png(1)), ("1.cls", b"7"), ("2.png", png(2)), ("2.cls", b"3")]
    )
    tar(tmp_path / "b.tar", [("3.png", png(3)), ("3.cls", b"seven")])
    source = open_source(str(tmp_path / "{a,b}.tar"), directory=tmp_path / "keep")
    assert [source.classes[label] for label in source.labels] == ["7", "3", "seven"]


@pytest.mark.parametrize("ahead", [False, True])
def test_a_shard_that_is_replaced_during_a_run_is_not_read(tmp_path, ahead):
    folder = numbered_shards(tmp_path / "s", [3, 3])
    source = open_source(str(folder / "*.tar"), directory=tmp_path / "keep")
    assert number(source.read(4)) == 4
    size = (folder / "shard-1.tar").stat().st_size
    with tarfile.open(folder / "shard-1.tar", "w") as file:
        for i in range(3, 6):
            for name, content in ((f"{i:05}.png", png(i + 7)), (f"{i:05}.cls", b"1")):
                info = tarfile.TarInfo(name)
                info.size = len(content)
                file.addfile(info, io.BytesIO(content))
    os.utime(folder / "shard-1.tar", ns=(1, 1))
    assert (folder / "shard-1.tar").stat().st_size == size
    if ahead:
        source.prefetch([3, 4, 5])
    with pytest.raises(ShardLost, match=r"shard-1\.tar changed since it was indexed"):
        source.read(4)
    assert number(source.read(1)) == 1
    again = open_source(str(folder / "*.tar"), directory=tmp_path / "keep")
    assert number(again.read(4)) == 11


def test_the_index_is_kept_until_a_shard_changes(tmp_path):
    folder, keep = numbered_shards(tmp_path / "s", [3, 3]), tmp_path / "keep"

    def opened() -> ShardSource:
        return open_source(str(folder / "*.tar"), directory=keep)

    before = opened()
    (kept,) = keep.glob("shards-*.npz")
    written = kept.stat().st_mtime_ns
    again = opened()
    assert kept.stat().st_mtime_ns == written
    assert again.fingerprint == before.fingerprint
    assert np.array_equal(again.index.starts, before.index.starts)
    numbered_shards(folder, [4, 3])
    changed = opened()
    assert len(changed) == 7
    assert changed.fingerprint != before.fingerprint
    kept.write_bytes(b"broken")
    assert len(opened()) == 7


def test_a_picture_that_cannot_be_decoded_is_told_as_in_a_folder(tmp_path):
    source = open_source(tar(tmp_path / "x.tar", [("1.png", b"broken"), ("2.png", png(2))]))
    with pytest.raises(BadPicture):
        source.read(0)
    assert number(source.read(1)) == 2


def test_mistakes_are_named(tmp_path):
    with pytest.raises(UserError, match=r"no shard that exists"):
        open_source(str(tmp_path / "*.tar"))
    with pytest.raises(UserError, match=r"one.tar does not exist"):
        open_source(str(tmp_path / "one.tar"))
    with pytest.raises(UserError, match=r"runs backwards"):
        open_source(str(tmp_path / "{9..1}.tar"))
    (tmp_path / "text.tar").write_text("this is no tar file at all" * 100)
    with pytest.raises(UserError, match=r"text.tar cannot be read as a tar file"):
        open_source(str(tmp_path / "text.tar"))
    with pytest.raises(UserError, match=r"without a picture"):
        open_source(tar(tmp_path / "empty.tar", [("notes.txt", b"hello")]))
    with pytest.raises(UserError, match=r"tar.gz.*so unpack them"):
        open_source("https://host/shard-{000..099}.tar.gz")


def test_many_bands_and_deep_grey_come_out_as_from_files(tmp_path):
    rng = np.random.default_rng(0)
    deep = rng.integers(0, 4096, (5, 7), dtype=np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    bands = rng.integers(0, 256, (5, 4, 6), dtype=np.uint8)
    first, *others = (Image.fromarray(band) for band in bands)
    first.save(tmp_path / "bands.tif", save_all=True, append_images=others)
    for name in ("deep.png", "bands.tif"):
        packed = open_source(tar(tmp_path / "x.tar", [(name, (tmp_path / name).read_bytes())]))
        (tmp_path / "list.txt").write_text(name)
        plain = open_source(tmp_path / "list.txt")
        assert packed.channels == plain.channels
        assert np.array_equal(packed.read(0), plain.read(0))


def test_a_source_travels_without_its_open_files(folder):
    source = open_source(folder / "shard-*.tar")
    source.read(3)
    copy = pickle.loads(pickle.dumps(source))
    assert number(copy.read(9)) == 9
    assert copy.fingerprint == source.fingerprint


def test_shards_sorted_by_class_are_remarked_upon(tmp_path):
    members = []
    for i in range(80):
        members += [(f"{i}.png", png(i)), (f"{i}.cls", str(i // 20).encode())]
    assert "`wessl pack` shuffles them" in open_source(tar(tmp_path / "s.tar", members)).note


# Order


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6).filter(sum), st.integers(0, 3))
def test_an_epoch_of_shards_visits_every_picture_once(counts, epoch):
    order = epoch_order(1, epoch, sum(counts), np.array(counts))
    assert sorted(order.tolist()) == list(range(sum(counts)))
    assert torch.equal(order, epoch_order(1, epoch, sum(counts), np.array(counts)))


def test_neighbours_stay_together_and_all_else_is_shuffled():
    counts = np.full(40, 4096)
    n = int(counts.sum())
    order = epoch_order(0, 0, n, counts)
    together = (order[1:] == order[:-1] + 1).float().mean()
    assert 0.86 < together < 0.88  # seven of eight
    first = order[:GROUP]
    assert len(torch.unique(first // 4096)) == GROUP // 4096  # whole shards, and no others
    assert len(torch.unique(order[:1024] // RUN)) == 1024 // RUN
    assert not torch.equal(order, epoch_order(0, 1, n, counts))


def test_a_cache_of_shards_keeps_their_order(folder, tmp_path):
    source = open_source(folder / "shard-*.tar")
    cached = Loader(build_cache(source, None, tmp_path), 4, seed=2)
    streamed = Loader(source, 4, seed=2, workers=0, short_side=None)
    for _, (some, others) in zip(range(8), zip(cached.batches(), streamed.batches())):  # noqa: B905
        assert torch.equal(some[0], others[0])
        assert torch.equal(some[1].pixels, others[1].pixels)


# Parts of a source


def test_a_subset_reads_and_labels_only_its_own(folder, tmp_path):
    for source in (open_source(folder / "shard-*.tar"), open_source("builtin://digits")):
        some = Subset(source, torch.tensor([9, 2, 11]))
        assert [some.name(i) for i in range(3)] == [source.name(i) for i in (9, 2, 11)]
        assert all(np.array_equal(some.read(i), source.read(j)) for i, j in enumerate((9, 2, 11)))
        assert some.labels.tolist() == source.labels[[9, 2, 11]].tolist()
        assert some.fingerprint != Subset(source, [9, 2, 12]).fingerprint
        assert len(build_cache(some, None, tmp_path)) == 3


def test_a_subset_of_files_looks_at_no_others(tmp_path):
    for i in range(4):
        (tmp_path / f"{i}.png").write_bytes(png(i))
    some = Subset(open_source(tmp_path), [1, 3])
    before = some.fingerprint
    os.utime(tmp_path / "0.png", ns=(1, 1))
    assert Subset(open_source(tmp_path), [1, 3]).fingerprint == before
    os.utime(tmp_path / "3.png", ns=(1, 1))
    assert Subset(open_source(tmp_path), [1, 3]).fingerprint != before


def test_a_subset_must_lie_in_its_source(folder):
    with pytest.raises(ValueError, match="from 0 to 21"):
        Subset(open_source(folder / "shard-*.tar"), [3, 22])


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a-{08..11}.tar", ["a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar"]),
        ("{8..11}", ["8", "9", "10", "11"]),
        ("{x,y}{0..1}", ["x0", "x1", "y0", "y1"]),
        ("plain.tar", ["plain.tar"]),
    ],
)
def test_brace_ranges_mean_what_a_shell_makes_of_them(text, meant):
    assert expand_braces(text) == meant
