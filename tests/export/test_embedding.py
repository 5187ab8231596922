"""Features of streamed pictures against the evaluation's, and the folder of parts they lie in."""

import resource
from contextlib import contextmanager

import numpy as np
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from wessl.data.batch import Batch
from wessl.data.cache.build import build_cache
from wessl.data.sources.open import open_source
from wessl.encoder.conv import ConvNet
from wessl.encoder.vit import ViT
from wessl.errors import Failure, UserError
from wessl.evaluate.classifiers.knn import neighbours
from wessl.evaluate.features.trained_encoder import TrainedEncoder, extract
from wessl.export.duplicates import near_duplicates
from wessl.export.embed import embed_into
from wessl.export.files import Near, write_features
from wessl.export.out import check_out
from wessl.export.stream import Look

SEEN = dict(encoder={"kind": "any"}, image_size=8, resize=8, mean=[0.5], std=[0.25], channels=1)


def encoder_of(module):
    return TrainedEncoder(module, dict(SEEN))


@pytest.fixture
def encoder():
    torch.manual_seed(0)
    return encoder_of(ViT(dim=48, depth=2, heads=2, patch_size=4, image_size=8, in_channels=1))


@pytest.fixture
def folder(tmp_path):
    """Pictures of different sizes; two of 23 cannot be read."""
    rng = np.random.default_rng(0)
    place = tmp_path / "pictures"
    place.mkdir()
    for i in range(23):
        pixels = rng.integers(0, 256, rng.integers(8, 14, 2), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{i:02d}.png")
    for i in (0, 9):
        (place / f"{i:02d}.png").write_bytes(b"no picture")
    return place


@contextmanager
def files_of_at_most(size):
    """As on a disk that is nearly full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def passes_of(encoder):
    """One entry for each batch that goes through the encoder."""
    seen = []
    encoder.encoder.patch_embed.register_forward_hook(lambda *args: seen.append(len(args[2])))
    return seen


def test_streamed_features_are_those_of_an_evaluation(encoder, folder, tmp_path):
    found = embed_into(tmp_path / "parts", Look(encoder, batch_size=4), open_source(folder, 1), 5)
    cache = build_cache(open_source(folder, 1), 256, tmp_path / "cache", workers=0)
    expected = extract(encoder, cache, batch_size=3)
    np.testing.assert_allclose(found.features, expected.numpy(), atol=1e-6)
    assert list(found.names()) == list(cache.names)
    assert [name for name, _ in found.skipped] == ["00.png", "09.png"]
    assert found.skipped == cache.skipped


def test_each_reading_is_made_of_the_tokens_it_names(encoder, folder, tmp_path):
    source = open_source(folder, 1)
    images = encoder.prepare(Batch.collate([source.read(1)]))
    tokens = encoder(images)[0]
    mean = tokens[1:].mean(0)
    for reading, expected in (
        ("cls", tokens[0]),
        ("mean", mean),
        ("cls+mean", torch.cat([tokens[0], mean])),
    ):
        found = embed_into(tmp_path / reading, Look(encoder, reading), source)
        np.testing.assert_allclose(found.features[0], expected.numpy(), atol=1e-6)
    half = embed_into(tmp_path / "half", Look(encoder, number="float16"), source)
    assert half.features.dtype == np.float16
    np.testing.assert_allclose(half.features[0], tokens[0].numpy(), rtol=1e-3)


def test_an_encoder_without_patches_has_only_its_one_token(folder, tmp_path):
    convolutional = encoder_of(ConvNet((4, 8), 1))
    convolutional.patch_tokens = False
    for reading in ("mean", "cls+mean"):
        with pytest.raises(UserError, match="this encoder has no patch tokens; use --reading cls"):
            embed_into(tmp_path / "parts", Look(convolutional, reading), open_source(folder, 1))
    found = embed_into(tmp_path / "parts", Look(convolutional), open_source(folder, 1))
    assert found.features.shape == (21, 8)


def test_finished_parts_are_not_computed_again_and_a_damaged_one_is(encoder, folder, tmp_path):
    source, home = open_source(folder, 1), tmp_path / "parts"
    whole = embed_into(tmp_path / "other", Look(encoder), source, 5).features.copy()
    with files_of_at_most(3500), pytest.raises(OSError, match="could not write"):
        embed_into(home, Look(encoder), source, 5)  # the last file, all features, is too large
    assert len(list(home.glob("part-*.npz"))) == 5
    (home / "part-000001.npz").write_bytes((home / "part-000001.npz").read_bytes()[:-40])
    seen, said = passes_of(encoder), []
    found = embed_into(home, Look(encoder), source, 5, say=said.append)
    assert sum(seen) == 4  # of the five pictures of that part one cannot be read
    assert said == ["18 of 23 pictures were done before; the rest follows"]
    np.testing.assert_array_equal(found.features, whole)
    embed_into(home, Look(encoder), source, 5)
    assert sum(seen) == 4
    assert sorted(path.name for path in home.iterdir()) == [
        ".lock", "features.npy", "key", "pictures.npz",
    ]  # fmt: skip


def test_another_picture_weight_or_setting_begins_anew(encoder, folder, tmp_path):
    home, said = tmp_path / "parts", []
    seen = passes_of(encoder)

    def computed(look, source):
        seen.clear()
        embed_into(home, look, source, say=said.append)
        return sum(seen)

    assert computed(Look(encoder), open_source(folder, 1)) == 21
    Image.new("L", (9, 9)).save(folder / "09.png")
    assert computed(Look(encoder), open_source(folder, 1)) == 22
    assert "they are made anew" in said[-1]
    assert computed(Look(encoder, "mean"), open_source(folder, 1)) == 22
    with torch.no_grad():
        encoder.encoder.cls_token.add_(1)
    assert computed(Look(encoder, "mean"), open_source(folder, 1)) == 22
    assert computed(Look(encoder, "mean"), open_source(folder, 1)) == 0


def test_features_that_are_no_numbers_stop_with_the_pictures_names(encoder, folder, tmp_path):
    with torch.no_grad():
        encoder.encoder.norm.bias.fill_(torch.nan)
    with pytest.raises(Failure, match=r"21 of 21 pictures: 01\.png, 02\.png"):
        embed_into(tmp_path / "parts", Look(encoder), open_source(folder, 1))
    with torch.no_grad():
        encoder.encoder.norm.bias.fill_(1e5)
    with pytest.raises(Failure, match="try without --half"):
        embed_into(tmp_path / "parts", Look(encoder, number="float16"), open_source(folder, 1))


def test_a_folder_without_one_readable_picture_is_a_failure(encoder, tmp_path):
    (tmp_path / "a.png").write_bytes(b"no")
    with pytest.raises(Failure, match=r"none of the 1 pictures can be decoded.*\n  a\.png: "):
        embed_into(tmp_path / "parts", Look(encoder), open_source(tmp_path, 1))


@pytest.fixture
def found(encoder, folder, tmp_path):
    return embed_into(tmp_path / "parts", Look(encoder), open_source(folder, 1))


def test_every_format_holds_the_same(found, tmp_path, monkeypatch):
    monkeypatch.setattr("wessl.export.files.ROWS", 4)
    names = list(found.names())
    rng = np.random.default_rng(0)
    near = Near(rng.integers(0, 21, (21, 3)), rng.random((21, 3), np.float32))
    write_features(tmp_path / "x.npz", found, near)
    with np.load(tmp_path / "x.npz") as kept:
        np.testing.assert_array_equal(kept["features"], found.features)
        assert kept["paths"].tolist() == names
        np.testing.assert_array_equal(kept["neighbours"], near.index)
        np.testing.assert_array_equal(kept["similarities"], near.similarity)
        assert str(kept["data"]) == str((tmp_path / "pictures").resolve())
    write_features(tmp_path / "x.npy", found, near)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), found.features)
    assert (tmp_path / "x.npy.names.txt").read_text().splitlines() == names
    np.testing.assert_array_equal(
        np.load(tmp_path / "x.npy.neighbours.npz")["neighbours"], near.index
    )
    write_features(tmp_path / "x.parquet", found, near)
    table = pyarrow.parquet.read_table(tmp_path / "x.parquet")
    assert table["path"].to_pylist() == names
    np.testing.assert_array_equal(table["features"].to_pylist(), found.features)
    np.testing.assert_array_equal(table["neighbours"].to_pylist(), near.index)
    skipped = (tmp_path / "x.parquet.skipped.txt").read_text().splitlines()
    assert [line.split("\t")[0] for line in skipped] == ["00.png", "09.png"]


@pytest.mark.parametrize("ending", ["npz", "npy", "parquet"])
def test_a_file_that_cannot_be_written_leaves_the_old_one(found, tmp_path, ending):
    out = tmp_path / "out" / f"x.{ending}"
    out.parent.mkdir()
    out.write_text("old")
    with files_of_at_most(700), pytest.raises(OSError, match="File too large"):
        write_features(out, found)
    assert out.read_text() == "old"
    assert not list(out.parent.glob(".*"))


def test_where_a_file_cannot_go_is_said_before_any_work(tmp_path):
    for name, words in (
        ("x.csv", r"must end in \.npz or \.npy or \.parquet"),
        ("nowhere/x.npz", "nowhere does not exist"),
    ):
        with pytest.raises(UserError, match=words):
            check_out(tmp_path / name)
    (tmp_path / "x.npz").mkdir()
    with pytest.raises(UserError, match="is a folder"):
        check_out(tmp_path / "x.npz")


def test_near_duplicates_are_those_of_a_plain_loop(monkeypatch):
    monkeypatch.setattr("wessl.export.duplicates._ROWS", 7)
    monkeypatch.setattr("wessl.export.duplicates._COLUMNS", 10)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 3))
    found = near_duplicates(torch.from_numpy(rows), 0.97)
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    expected = {
        (i, j): unit[i] @ unit[j]
        for i in range(40)
        for j in range(i + 1, 40)
        if unit[i] @ unit[j] >= 0.97
    }
    pairs = dict(
        zip(zip(found.first.tolist(), found.second.tolist(), strict=True), found.similarity,
            strict=True)
    )  # fmt: skip
    assert pairs == pytest.approx(expected, abs=1e-6)
    group = {}
    for number, first, second in zip(found.group, found.first, found.second, strict=True):
        assert group.setdefault(first, number) == number == group.setdefault(second, number)
    sizes = np.bincount(list(group.values()))[1:]
    assert len(sizes) > 2
    assert (np.diff(sizes) <= 0).all()  # the largest group first


def test_too_many_near_duplicates_ask_for_another_threshold(monkeypatch):
    monkeypatch.setattr("wessl.export.duplicates.MOST", 100)
    with pytest.raises(UserError, match="more than 100 pairs"):
        near_duplicates(torch.ones(20, 2))
    with pytest.raises(UserError, match="a cosine above 0 and up to 1"):
        near_duplicates(torch.ones(20, 2), 1.5)
    assert len(near_duplicates(torch.eye(5)).first) == 0
    assert len(near_duplicates(torch.rand(1, 3).expand(9, 3), 1.0).first) == 36


def test_nobody_is_his_own_neighbour_even_among_copies():
    rows = torch.cat([torch.ones(6, 2), torch.tensor([[1.0, 0.0], [0.0, 1.0]])])
    similarity, index = neighbours(rows, 3)
    assert index.shape == similarity.shape == (8, 3)
    assert not (index == torch.arange(8)[:, None]).any()
    assert (index[:6] < 6).all()
    torch.testing.assert_close(similarity[:6], torch.ones(6, 3))
    assert neighbours(rows, 50)[1].shape == (8, 7)
