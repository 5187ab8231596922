"""Data sets in the Hugging Face format, with the real package and without a network."""

import numpy as np
import pytest
from PIL import Image

from wessl.data.loading.loader import Loader
from wessl.data.sources.open import open_source
from wessl.data.workers.many import decode_many
from wessl.errors import UserError

datasets = pytest.importorskip("datasets")

RNG = np.random.default_rng(0)
PIXELS = [RNG.integers(0, 256, (10, 12, 3), dtype=np.uint8) for _ in range(9)]
LABELS = [i % 3 for i in range(9)]


@pytest.fixture(autouse=True)
def offline(monkeypatch, tmp_path):
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "home")
    datasets.disable_progress_bars()


def table(**columns):
    features = dict(image=datasets.Image(), label=datasets.ClassLabel(names=["a", "b", "c"]))
    given = dict(image=[Image.fromarray(p) for p in PIXELS], label=LABELS) | columns
    known = {name: features.get(name, datasets.Value("string")) for name in given}
    return datasets.Dataset.from_dict(given, features=datasets.Features(known))


def test_a_saved_data_set_opens_with_its_labels_and_class_names(tmp_path):
    table().save_to_disk(tmp_path / "saved")
    source = open_source(f"hf://{tmp_path}/saved")
    assert len(source) == 9
    assert source.classes == ["a", "b", "c"]
    assert source.labels.tolist() == LABELS
    assert all(np.array_equal(source.read(i), PIXELS[i]) for i in range(9))
    assert source.name(4) == f"hf://{tmp_path}/saved[4]"
    assert open_source(f"hf://{tmp_path}/saved").fingerprint == source.fingerprint


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_and_loader_read_it(tmp_path, workers):
    table().save_to_disk(tmp_path / "saved")
    source = open_source(f"hf://{tmp_path}/saved")
    found = list(decode_many(source, [8, 0, 3], None, workers))
    assert all(np.array_equal(pixels, PIXELS[i]) for i, pixels in found)
    indices, batch = next(Loader(source, 4, workers=workers, short_side=None).batches())
    assert np.array_equal(batch.pixels[1].numpy(), PIXELS[indices[1]])


def test_splits_are_chosen_by_name_and_train_is_the_first_choice(tmp_path):
    whole = table()
    parts = datasets.DatasetDict(test=whole.select([1, 2]), train=whole.select(range(3, 9)))
    parts.save_to_disk(tmp_path / "both")
    assert len(open_source(f"hf://{tmp_path}/both")) == 6
    test = open_source(f"hf://{tmp_path}/both:test")
    assert test.labels.tolist() == [1, 2]
    assert np.array_equal(test.read(1), PIXELS[2])
    with pytest.raises(UserError, match=r"choose one of its splits, test, train"):
        open_source(f"hf://{tmp_path}/both:validation")


def test_a_folder_and_a_parquet_file_open_as_load_dataset_opens_them(tmp_path):
    for i, pixels in enumerate(PIXELS):
        path = tmp_path / "folder" / "xyz"[i % 3] / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path)
    source = open_source(f"hf://{tmp_path}/folder")
    assert source.classes == ["x", "y", "z"]
    assert source.labels.tolist() == sorted(LABELS)
    (tmp_path / "pq").mkdir()
    table().to_parquet(tmp_path / "pq" / "train.parquet")
    source = open_source(f"hf://{tmp_path}/pq:train")
    assert source.labels.tolist() == LABELS
    assert np.array_equal(source.read(5), PIXELS[5])
    changed = table().select(range(8))
    changed.to_parquet(tmp_path / "pq" / "train.parquet")
    assert open_source(f"hf://{tmp_path}/pq").fingerprint != source.fingerprint


def test_columns_are_found_by_their_type(tmp_path):
    pictures = [Image.fromarray(p) for p in PIXELS]
    features = datasets.Features(scan=datasets.Image(), labels=datasets.Value("string"))
    given = dict(scan=pictures, labels=["dog", "cat", "dog"] * 3)
    datasets.Dataset.from_dict(given, features=features).save_to_disk(tmp_path / "named")
    source = open_source(f"hf://{tmp_path}/named")
    assert [source.classes[i] for i in source.labels] == given["labels"]
    assert np.array_equal(source.read(2), PIXELS[2])
    datasets.Dataset.from_dict(dict(text=["a"])).save_to_disk(tmp_path / "text")
    with pytest.raises(UserError, match=r"no column of pictures; its columns are text \(Value\)"):
        open_source(f"hf://{tmp_path}/text")


def test_missing_data_sets_and_names_are_told(tmp_path):
    with pytest.raises(UserError, match=r"hf://.*nowhere cannot be opened"):
        open_source(f"hf://{tmp_path}/nowhere")
    with pytest.raises(UserError, match="a name is missing"):
        open_source("hf://")


def test_a_row_without_a_picture_is_a_bad_picture(tmp_path):
    pictures = [Image.fromarray(PIXELS[0]), None]
    table(image=pictures, label=[0, 1]).save_to_disk(tmp_path / "gap")
    source = open_source(f"hf://{tmp_path}/gap")
    found = dict(decode_many(source, [0, 1], None, 0))
    assert str(found[1]) == "there is none in this row"
