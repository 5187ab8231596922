"""What is chosen for the user, from what, and how it is told."""

import numpy as np
import pytest
import torch
from PIL import Image

import wessl
from wessl import plan
from wessl.data.sources.open import Source, open_source
from wessl.errors import UserError
from wessl.settings import override

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """As many upright as lying, of many sizes, sorted by name so that few in a row are alike."""
    folder = tmp_path_factory.mktemp("photos")
    random = np.random.default_rng(0)
    for i in range(200):
        short, long = int(random.integers(60, 90)), int(random.integers(100, 150))
        size = (short, long) if random.random() < 0.5 else (long, short)
        Image.new("RGB", size, (i, 0, 0)).save(folder / f"{i:03d}.png")
    return folder


def test_a_folder_and_the_shards_of_it_give_the_same_recipe(photos, tmp_path):
    wessl.pack(photos, tmp_path / "shards", per_shard=40)
    shards = open_source(tmp_path / "shards")
    facts = [plan.look_at(source, CPU) for source in (open_source(photos), shards)]
    assert facts[0].height == facts[1].height
    assert facts[0].width == facts[1].width
    sizes = [Image.open(path).size for path in photos.iterdir()]
    assert facts[0].short_side == sorted(min(size) for size in sizes)[99]


def test_sizes_are_told_as_pictures_stand_and_without_decoding_them(tmp_path):
    for i in range(3):
        exif = Image.Exif()
        exif[0x0112] = 6
        Image.new("RGB", (40, 20)).save(tmp_path / f"{i}.jpg", exif=exif)
        whole = (tmp_path / f"{i}.jpg").read_bytes()
        (tmp_path / f"{i}.jpg").write_bytes(whole[:-20])  # its header is there
    source = open_source(tmp_path)
    assert source.size(0) == (40, 20)
    assert plan.typical_size(source) == (40, 20)


def test_of_many_pictures_a_few_hundred_are_looked_at():
    class Many(Source):
        location, channels, fingerprint = "many", 3, ""
        looked_at = 0

        def __len__(self):
            return 1_000_000

        def name(self, index):
            return str(index)

        def read(self, index, short_side=None):
            self.looked_at += 1
            return np.zeros((30, 20, 3), np.uint8)

    many = Many()
    assert plan.typical_size(many) == (30, 20)
    assert 100 <= many.looked_at <= 256


def test_pictures_of_which_none_can_be_read_are_told(tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.png").write_bytes(b"no picture")
    with pytest.raises(
        UserError, match=r"none of the 2 pictures looked at in .* can be read; a.png: no picture"
    ):
        plan.look_at(open_source(tmp_path), CPU)


def told(photos, changes, recipe="auto"):
    """Setting: its value and reason, as they are printed."""
    request = dict(recipe=recipe, budget=None)
    chosen = plan.choose(request, open_source(photos), CPU, lambda c: override(c, changes))
    rows = [line[2:].split(None, 2) for line in plan.table(chosen).splitlines()]
    return {name: (value, reason) for name, value, reason in rows}


def test_the_table_tells_how_many_heads_there_are_and_how_wide(photos):
    rows = told(photos, {"encoder.kind": "vit"})
    assert rows["heads.count"] == ("16", "the ensemble; the paper's")
    assert rows["heads.hidden_dim"] == ("1024", "the paper's")
    assert rows["encoder.size"] == ("T", "what a CPU trains in fair time")


def test_the_users_settings_stand_in_the_table_beside_those_they_belong_to(photos):
    own = {"encoder.dim": 64, "heads.count": 4, "optim.weight_decay": 0.1, "loss.weighting": "unif"}
    rows = told(photos, own)
    for name, value in own.items():
        assert rows[name] == (str(value), "as asked for")
    assert rows["encoder.size"][1] == "what a CPU trains in fair time, but for encoder.dim"
    groups = [name.split(".")[0] for name in rows]
    runs = [group for group, before in zip(groups, ["", *groups], strict=False) if group != before]
    assert runs.count("encoder") == 1
    assert "loss.gamma" not in rows  # it follows the weighting


def test_the_users_settings_on_a_published_recipe_are_told_too(photos):
    rows = told(photos, {"heads.count": 4}, "dino-star-ent/vits16")
    assert rows["heads.count"] == ("4", "as asked for")


def test_a_list_that_the_user_sets_is_one_setting(photos):
    rows = told(photos, {"encoder.kind": "conv", "encoder.widths": (8, 16, 32)})
    assert rows["encoder.widths"][0] == "(8,"
    assert rows["encoder.widths"][1].endswith("as asked for")
    assert "encoder.widths.0" not in rows


@pytest.mark.parametrize(
    ("found", "speed"),
    [
        (7.8e14, 1.0),
        (RuntimeError("CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), 1.0),
        (1.3e14, 2**-2.5),
    ],
)
def test_a_gpu_is_as_fast_as_it_multiplies_and_taken_as_known_where_it_has_no_room(
    monkeypatch, found, speed
):
    def measured(device, dtype):
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr("wessl.bench.rate.matrix_rate", measured)
    monkeypatch.setattr("wessl.plan.has_bf16", lambda device: True)
    assert plan.gpu_speed(torch.device("cuda")) == pytest.approx(speed)


def test_a_gpu_that_breaks_otherwise_is_not_taken_for_a_small_one(monkeypatch):
    def broken(device, dtype):
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setattr("wessl.bench.rate.matrix_rate", broken)
    monkeypatch.setattr("wessl.plan.has_bf16", lambda device: True)
    with pytest.raises(RuntimeError, match="illegal"):
        plan.gpu_speed(torch.device("cuda"))
