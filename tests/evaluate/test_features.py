"""Features against the encoder's own tokens, and the folder that keeps them."""

import errno

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from wessl.config import Config, EncoderConfig, HeadsConfig
from wessl.data.cache.build import build_cache
from wessl.data.cache.digest import pictures_digest
from wessl.data.sources.open import open_source
from wessl.data.views.config import dino_views
from wessl.encoder.conv import ConvNet
from wessl.encoder.vit import ViT
from wessl.errors import UserError
from wessl.evaluate.features.trained_encoder import (
    TrainedEncoder,
    extract,
    extract_all,
    load,
    readings_of,
)
from wessl.evaluate.stores.features import FeatureStore, weights_digest
from wessl.pretrain.model import build_model, teacher_of
from wessl.run import Run, describe_encoder
from wessl.settings import to_dict


def build(folder, name="pictures", count=23, seed=0, sizes=(8, 14)):
    """Noise pictures of different sizes, written as a user's folder."""
    rng = np.random.default_rng(seed)
    place = folder / name
    place.mkdir(parents=True)
    for i in range(count):
        shape = rng.integers(*sizes, 2)
        Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(place / f"{i:02d}.png")
    return build_cache(open_source(place), None, folder / "cache", workers=0)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return build(tmp_path_factory.mktemp("pictures"))


def trained(module, **changes):
    described = dict(encoder={"kind": "any"}, image_size=8, resize=8, mean=[0.5], std=[0.25])
    return TrainedEncoder(module, described | {"channels": 1} | changes)


def vit(depth=5, seed=0):
    torch.manual_seed(seed)
    return ViT(dim=12, depth=depth, heads=2, patch_size=4, image_size=8, in_channels=1)


@pytest.fixture
def encoder():
    return trained(vit())


@pytest.fixture
def passes(encoder):
    """One entry for each batch that goes through the encoder."""
    seen = []
    encoder.encoder.patch_embed.register_forward_hook(lambda *args: seen.append(len(args[2])))
    return seen


def test_another_size_of_pictures_keeps_the_share_that_is_cut_off():
    described = {"kind": "vit", "patch_size": 4}
    encoder = trained(vit(), encoder=described, image_size=8, resize=9)
    larger = encoder.at_size(16)
    assert (larger.description["image_size"], larger.description["resize"]) == (16, 18)
    assert (encoder.description["image_size"], encoder.description["resize"]) == (8, 9)
    pictures = [np.full((20, 30), 7, np.uint8)]
    assert larger.prepare(larger._batch(pictures)).shape == (1, 1, 16, 16)
    torch.testing.assert_close(
        larger.embed(pictures), encoder.cls(larger.prepare(larger._batch(pictures)))
    )
    assert (larger.resized_from, encoder.resized_from) == (8, None)
    assert encoder.at_size(8) is encoder
    back = larger.at_size(8)
    assert back.resized_from is None
    assert back.description == encoder.description
    assert larger.at_size(12).description["resize"] == encoder.at_size(12).description["resize"]
    assert type(encoder.at_size(np.int64(16)).description["image_size"]) is int
    for wrong in (16.0, "16", True, None, 0, 5000):
        with pytest.raises(UserError, match=f"whole number from 1 to 4,096, not {wrong!r}"):
            encoder.at_size(wrong)
    for size, near in ((14, "12 or 16"), (3, "4 or 8")):
        with pytest.raises(UserError, match=f"--image-size {size}: .* multiple of 4.* {near}"):
            encoder.at_size(size)


def test_each_reading_is_made_of_the_tokens_it_names(encoder):
    images = torch.randn(3, 1, 8, 8)
    tokens, layers = encoder(images), encoder.encoder.last_blocks(images, 4)
    mean = sum(tokens[:, i] for i in range(1, 5)) / 4
    expected = {
        "cls": tokens[:, 0],
        "cls4": torch.cat([layers[i][:, 0] for i in range(4)], 1),
        "cls+mean": torch.cat([tokens[:, 0], mean], 1),
    }
    for asked in (["cls"], ["cls4"], ["cls+mean"], ["cls4", "cls"], ["cls+mean", "cls", "cls4"]):
        found = encoder.read(images, asked)
        assert list(found) == asked
        for reading in asked:
            torch.testing.assert_close(found[reading], expected[reading])


def test_one_pass_feeds_all_readings(encoder, passes, cache):
    found = extract_all(encoder, cache, ("cls", "cls4", "cls+mean"), batch_size=10)
    assert passes == [10, 10, 3]
    assert {reading: x.shape[1] for reading, x in found.items()} == dict(
        zip(("cls", "cls4", "cls+mean"), (12, 48, 24), strict=True)
    )


def test_what_an_encoder_cannot_give_is_told():
    conv, shallow = trained(ConvNet((4, 8), 1)), trained(vit(depth=3))
    flat = trained(ConvNet((4, 8), 1))
    flat.encoder.patch_tokens = False
    assert readings_of(trained(vit())) == ("cls", "cls4", "cls+mean")
    assert readings_of(conv) == readings_of(shallow) == ("cls", "cls+mean")
    assert readings_of(flat) == ("cls",)
    images = torch.randn(2, 1, 8, 8)
    with pytest.raises(UserError, match=r"'cls4' cannot .* ConvNet: .* inner layers; possible are"):
        conv.read(images, ["cls4"])
    with pytest.raises(UserError, match=r"'cls4' cannot be taken from this ViT: it has 3 layers"):
        shallow.read(images, ["cls4"])
    with pytest.raises(UserError, match=r"it has no patch tokens; possible are cls$"):
        flat.read(images, ["cls+mean"])
    with pytest.raises(UserError, match=r"must be one of cls, cls4, cls\+mean, not 'mean'"):
        conv.read(images, ["mean"])


def test_features_are_those_of_each_picture_alone_in_the_order_asked(encoder, cache):
    indices = torch.tensor([20, 3, 3, 0, 11])
    found = extract(encoder, cache, indices, batch_size=2)
    assert (found.dtype, found.device.type) == (torch.float32, "cpu")
    for row, i in zip(found, indices.tolist(), strict=True):
        alone = encoder.embed(cache.picture(i)[None])[0]
        torch.testing.assert_close(row, alone, atol=1e-5, rtol=1e-5)
    assert extract(encoder, cache, indices[:0]).shape == (0, 12)


def test_two_devices_give_the_very_same_features(encoder, cache):
    readings = ("cls", "cls+mean")
    one = extract_all(encoder, cache, readings, batch_size=3)
    two = extract_all(encoder, cache, readings, batch_size=3, devices=["cpu", "cpu"])
    assert all(torch.equal(one[reading], two[reading]) for reading in readings)


@pytest.mark.parametrize("devices", [None, ["cpu", "cpu"]])
def test_progress_counts_every_picture_once(encoder, cache, devices):
    seen = []
    extract(
        encoder,
        cache,
        batch_size=5,
        devices=devices,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert [total for _, total in seen] == [23] * 5
    assert sorted(done for done, _ in seen) == [done for done, _ in seen]
    assert seen[-1] == (23, 23)


def test_an_error_on_one_device_ends_them_all(encoder, cache):
    def fail(*_):
        raise RuntimeError("out of memory")

    encoder.encoder.blocks[0].register_forward_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        extract(encoder, cache, batch_size=1, devices=["cpu", "cpu"])


def test_bf16_is_near_fp32_and_comes_back_as_fp32(encoder, cache):
    half, full, auto = (extract(encoder, cache, precision=p) for p in ("bf16", "fp32", "auto"))
    assert half.dtype == torch.float32
    assert torch.equal(auto, full)  # on a CPU
    assert not torch.equal(half, full)
    torch.testing.assert_close(half, full, atol=0.1, rtol=0.1)
    with pytest.raises(UserError, match="precision must be auto, bf16 or fp32, not 'fp16'"):
        extract(encoder, cache, precision="fp16")


def test_pictures_of_other_channels_are_refused(cache):
    colour = trained(ConvNet((4, 8), 3), channels=3)
    with pytest.raises(UserError, match="takes pictures of 3 channels and these have 1; open them"):
        extract(colour, cache)


@pytest.fixture
def run(tmp_path):
    """A run folder as training leaves it, with a student that has moved on from its teacher."""
    small = EncoderConfig(kind="conv", widths=(4, 8), image_size=8)
    heads = HeadsConfig(count=2, hidden_dim=8, depth=2, embed_dim=4, codes=6)
    config = Config(encoder=small, heads=heads, views=dino_views(8, 4, 2), channels=1)
    normalisation = dict(mean=[0.5], std=[0.25])
    run = Run.create(tmp_path / "run", dict(config=to_dict(config), normalisation=normalisation))
    student = build_model(config)
    teacher = teacher_of(student)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter += 0.1
    state = dict(student=student.state_dict(), teacher=teacher.state_dict(), optimizer={})
    run.save_checkpoint(7, state | dict(step=7), keep=2)
    run.save_encoder(teacher.encoder.state_dict(), describe_encoder(config, **normalisation))
    return run


def test_the_student_comes_from_the_newest_checkpoint(run):
    teacher, student = load(run.path), load(run.path, network="student")
    state = run.load_checkpoint()
    for name, tensor in student.encoder.state_dict().items():
        assert torch.equal(tensor, state["student"][f"encoder.{name}"])
    for name, tensor in teacher.encoder.state_dict().items():
        assert torch.equal(tensor, state["teacher"][f"encoder.{name}"])
    assert student.description["network"] == "student"
    assert {k: student.description[k] for k in ("mean", "std", "resize", "image_size")} == {
        k: teacher.description[k] for k in ("mean", "std", "resize", "image_size")
    }
    assert weights_digest(teacher) != weights_digest(student)


def test_where_there_is_no_student_that_is_said(run, tmp_path):
    with pytest.raises(UserError, match=r"encoder.safetensors is no student; give a file of"):
        load(run.path / "encoder.safetensors", network="student")
    torch.save(ViT("T", depth=1, image_size=32).state_dict(), tmp_path / "timm.pth")
    with pytest.raises(UserError, match="holds one network, not a teacher and a student"):
        load(tmp_path / "timm.pth", network="student")
    with pytest.raises(UserError, match="network must be teacher or student"):
        load(run.path, network="both")
    (newest,) = run.checkpoints.glob("*.pt")
    newest.write_bytes(newest.read_bytes()[:-10])
    with pytest.raises(UserError, match="has no whole checkpoint, and its student is nowhere else"):
        load(run.path, network="student")


def test_the_second_time_features_are_read_and_not_computed(encoder, passes, cache, tmp_path):
    first = FeatureStore(tmp_path).features(encoder, cache, batch_size=30)
    assert passes == [23]
    second = FeatureStore(tmp_path).features(encoder, cache)
    assert passes == [23]
    assert torch.equal(first, second)
    assert torch.equal(first, extract(encoder, cache))
    assert [file.suffix for file in (tmp_path / "features").iterdir()] == [".safetensors"]


def test_only_readings_that_are_missing_are_computed(encoder, passes, cache, tmp_path):
    store = FeatureStore(tmp_path)
    store.features(encoder, cache, "cls4")
    found = store.features_all(encoder, cache, ("cls", "cls4", "cls+mean"))
    assert passes == [23, 23]
    assert list(found) == ["cls", "cls4", "cls+mean"]
    expected = extract_all(encoder, cache, ("cls", "cls4", "cls+mean"))
    for reading, features in expected.items():
        torch.testing.assert_close(found[reading], features)


def test_other_weights_pictures_or_transforms_are_computed(encoder, passes, cache, tmp_path):
    store = FeatureStore(tmp_path / "run")
    before = store.features(encoder, cache)
    other = build(tmp_path, "other", seed=1)
    assert store.features(encoder, other).shape == before.shape
    assert len(passes) == 2
    for change in (dict(resize=9), dict(mean=[0.4]), dict(std=[0.3])):
        described = encoder.description | change
        store.features(TrainedEncoder(encoder.encoder, described), cache)
    assert len(passes) == 5
    store.features(encoder, cache, precision="bf16")
    assert len(passes) == 6
    with torch.no_grad():
        encoder.encoder.norm.bias[0] += 1
    after = store.features(encoder, cache)
    assert len(passes) == 7
    torch.testing.assert_close(after[:, 0], before[:, 0] + 1)


def test_the_same_pictures_elsewhere_are_known_again(encoder, passes, cache, tmp_path):
    store = FeatureStore(tmp_path)
    store.features(encoder, cache)
    store.features(encoder, build(tmp_path, "moved"))
    assert len(passes) == 1


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "text"])
def test_a_damaged_file_is_computed_and_written_again(encoder, passes, cache, tmp_path, damage):
    store = FeatureStore(tmp_path)
    whole = store.features(encoder, cache)
    (file,) = (tmp_path / "features").iterdir()
    content = file.read_bytes()
    changed = content[:-8] + bytes([content[-8] ^ 1]) + content[-7:]
    spoilt = {"cut": content[:-40], "changed": changed, "empty": b"", "text": b"features" * 99}
    file.write_bytes(spoilt[damage])
    assert torch.equal(store.features(encoder, cache), whole)
    assert len(passes) == 2
    assert file.read_bytes() == content


def test_asked_again_only_features_of_the_same_store_are_read(encoder, passes, cache, tmp_path):
    FeatureStore(tmp_path).features(encoder, cache)
    anew = FeatureStore(tmp_path, again=True)
    assert anew.kept(encoder, cache, "auto", [encoder.device]) is None
    first = anew.features(encoder, cache)
    assert len(passes) == 2
    assert torch.equal(anew.features(encoder, cache), first)
    assert torch.equal(anew.kept(encoder, cache, "auto", [encoder.device]), first)
    assert torch.equal(FeatureStore(tmp_path).features(encoder, cache), first)
    assert len(passes) == 2


def test_what_could_not_be_written_again_is_not_read_from_before(
    encoder, passes, cache, tmp_path, monkeypatch
):
    FeatureStore(tmp_path).features(encoder, cache)
    anew = FeatureStore(tmp_path, again=True)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("wessl.evaluate.stores.features.save_file", full)
    with pytest.warns(UserWarning, match="features are not kept"):
        anew.features(encoder, cache)
    with pytest.warns(UserWarning, match="features are not kept"):
        anew.features(encoder, cache)
    assert len(passes) == 3


def test_features_of_another_torch_are_computed(encoder, passes, cache, tmp_path, monkeypatch):
    FeatureStore(tmp_path).features(encoder, cache)
    monkeypatch.setattr(torch, "__version__", "99.0.0")
    FeatureStore(tmp_path).features(encoder, cache)
    assert len(passes) == 2


def test_without_a_run_folder_nothing_is_kept(encoder, passes, cache):
    store = FeatureStore(None)
    assert torch.equal(store.features(encoder, cache), store.features(encoder, cache))
    assert len(passes) == 2


def test_a_folder_that_cannot_be_written_costs_only_the_keeping(encoder, cache, tmp_path):
    (tmp_path / "features").write_text("not a folder")
    with pytest.warns(UserWarning, match="features are not kept and will be computed again"):
        features = FeatureStore(tmp_path).features(encoder, cache)
    assert torch.equal(features, extract(encoder, cache))


def test_a_digest_sees_one_changed_byte_and_another_shape_of_the_same_bytes(tmp_path):
    def digest(images):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.npz"
        np.savez(path, images=images)
        return pictures_digest(build_cache(open_source(path), None, tmp_path / "cache"))

    images = np.arange(6 * 32, dtype=np.uint8).reshape(6, 4, 8)
    other = images.copy()
    other[5, 3, 7] ^= 1
    shapes = [images, other, images.reshape(6, 8, 4), images[::-1], images[:5]]
    assert len({digest(x) for x in shapes}) == len(shapes)
    assert digest(images) == digest(images.copy())


def test_a_digest_is_kept_beside_the_pictures_and_survives_damage(tmp_path):
    cache = build(tmp_path)
    known, kept = pictures_digest(cache), cache.home / "digest.json"
    assert known in kept.read_text()
    for spoilt in ("", "[]", '{"mark": [1, 2, 3], "sha256": "wrong"}'):
        kept.write_text(spoilt)
        assert pictures_digest(cache) == known
    assert known in kept.read_text()


class Head(nn.Module):
    """An encoder of somebody else's, with only what the protocol asks for."""

    dim, patch_tokens = 16, False

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def cls(self, images):
        return images.flatten(1)[:, :16] * self.scale

    def forward(self, images):
        return self.cls(images)[:, None]


def test_an_encoder_of_ones_own_needs_no_base_class(cache, tmp_path):
    own = trained(Head())
    features = FeatureStore(tmp_path).features(own, cache)
    assert features.shape == (23, 16)
    assert readings_of(own) == ("cls",)


def test_an_opened_picture_is_embedded_as_its_file(tmp_path):
    network = ViT(dim=12, depth=2, heads=2, patch_size=4, image_size=8)
    encoder = trained(network, channels=3, mean=[0.5] * 3, std=[0.25] * 3)
    rng = np.random.default_rng(0)
    colour = Image.fromarray(rng.integers(0, 256, (40, 56, 3), dtype=np.uint8))
    lying = Image.Exif()
    lying[0x0112] = 6
    colour.save(tmp_path / "turned.jpg", exif=lying)
    colour.convert("CMYK").save(tmp_path / "cmyk.jpg")
    colour.quantize(16).save(tmp_path / "palette.png")
    colour.convert("L").save(tmp_path / "grey.png")
    clear = colour.convert("RGBA")
    clear.putalpha(Image.fromarray(rng.integers(0, 256, (40, 56), dtype=np.uint8)))
    clear.save(tmp_path / "clear.png")
    for path in sorted(tmp_path.iterdir()):
        with Image.open(path) as opened:
            assert torch.equal(encoder.embed([opened]), encoder.embed([path])), path.name


def test_a_picture_that_cannot_be_read_is_named(encoder, tmp_path):
    text = tmp_path / "text.jpg"
    text.write_text("no picture")
    for path, why in (
        (text, "no picture that Pillow knows"),
        (tmp_path / "gone.jpg", "No such file"),
        (tmp_path, "Is a directory; list the files in it"),
    ):
        with pytest.raises(UserError, match=why) as told:
            encoder.embed([path])
        assert str(told.value).startswith(f"{path}: ")
