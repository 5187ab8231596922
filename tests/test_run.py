"""Run folders: what is written is read back, and damage is told in words."""

import argparse
import errno
import json
import math
import os

import pytest
import torch
from safetensors.torch import save_file

import wessl.run.folder as module
from wessl.config import EncoderConfig
from wessl.encoder.conv import ConvNet
from wessl.encoder.vit import ViT
from wessl.errors import UserError
from wessl.files import sha256, write_json, write_whole
from wessl.run import Run, build_encoder, read_weights
from wessl.settings import from_dict


@pytest.fixture
def run(tmp_path) -> Run:
    return Run.create(tmp_path / "deep" / "run", {"config": {"seed": 3}})


def test_a_run_is_what_has_a_config(run, tmp_path):
    assert run.exists
    assert Run(run.path).read_config() == {"config": {"seed": 3}}
    assert repr(run) == f"Run({str(run.path)!r})"
    assert not Run(tmp_path).exists
    with pytest.raises(UserError, match="is no run folder; train one first"):
        Run(tmp_path).read_config()


@pytest.mark.parametrize("content", [b"", b'{"config": {"se', b"\xff\xfe\x00"])
def test_a_damaged_config_is_told(run, content):
    (run.path / "config.json").write_bytes(content)
    with pytest.raises(UserError, match=r"config.json is damaged .* use a new --out"):
        run.read_config()


def test_a_folder_that_cannot_be_made_is_told_with_its_flag(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"--out .*file/run: cannot be written \(Not a directory\)"):
        Run.create(tmp_path / "file" / "run", {})


def test_a_config_that_cannot_be_written_is_told_with_the_reason(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"--out .*: cannot be written .*No space left on device"):
        Run.create(tmp_path / "run", {})
    assert list((tmp_path / "run").rglob("*.*")) == []


def test_metrics_come_back_in_the_order_of_steps(run):
    assert run.read_metrics() == []
    for step in (10, 20, 30):
        run.add_metrics({"step": step, "loss": step / 10})
    assert [row["loss"] for row in run.read_metrics()] == [1.0, 2.0, 3.0]


def test_of_a_step_written_twice_the_later_row_counts(run):
    for step, loss in ((10, 1.0), (20, 2.0), (30, 3.0), (20, 2.5), (40, 4.0)):
        run.add_metrics({"step": step, "loss": loss})
    assert [(r["step"], r["loss"]) for r in run.read_metrics()] == [
        (10, 1.0),
        (20, 2.5),
        (30, 3.0),
        (40, 4.0),
    ]


def test_a_probe_and_a_row_of_one_step_are_both_kept(run):
    run.add_metrics({"step": 10, "loss": 1.0})
    run.add_metrics({"step": 10, "probe": {"knn": 0.5}})
    assert run.read_metrics() == [{"step": 10, "loss": 1.0}, {"step": 10, "probe": {"knn": 0.5}}]


def test_half_a_last_line_costs_neither_the_rows_before_nor_those_after(run):
    run.add_metrics({"step": 10, "loss": 1.0})
    run.add_metrics({"step": 20, "loss": 2.0})
    path = run.path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert [row["step"] for row in run.read_metrics()] == [10]
    run.add_metrics({"step": 20, "loss": 2.5})
    run.add_metrics({"step": 30, "loss": 3.0})
    assert [(row["step"], row["loss"]) for row in run.read_metrics()] == [
        (10, 1.0),
        (20, 2.5),
        (30, 3.0),
    ]


def test_a_loss_that_is_no_number_is_written_as_null(run):
    run.add_metrics({"step": 10, "loss": math.nan, "head_shares": [math.inf, 0.5]})
    assert run.read_metrics() == [{"step": 10, "loss": None, "head_shares": [None, 0.5]}]
    assert "NaN" not in (run.path / "metrics.jsonl").read_text()


def test_log_lines_are_dated_and_appended(run):
    run.log("one")
    run.log("two")
    lines = (run.path / "train.log").read_text().splitlines()
    assert [line.split("  ")[1] for line in lines] == ["one", "two"]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "value.json"
    write_json(path, {"a": 1})

    def half(temporary):
        temporary.write_text('{"a"')
        raise RuntimeError("file write failed")

    with pytest.raises(OSError, match=r"could not write .*value.json: file write failed"):
        write_whole(path, half)
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["value.json"]


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of Unix")
@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077])
def test_files_get_the_permissions_of_any_new_file_and_keep_those_they_have(run, umask):
    before = os.umask(umask)
    try:
        (run.path / "plain").open("w").close()
        run.save_encoder({"w": torch.ones(2)}, {})
        written = [run.path / name for name in ("encoder.safetensors", "encoder.json")]
        wanted = (run.path / "plain").stat().st_mode
        assert [path.stat().st_mode for path in written] == [wanted, wanted]
        for path in written:
            path.chmod(0o640)
        run.save_encoder({"w": torch.zeros(2)}, {})
        assert [path.stat().st_mode & 0o777 for path in written] == [0o640, 0o640]
    finally:
        os.umask(before)


def test_a_checkpoints_checksum_is_that_of_its_bytes(run):
    path = run.save_checkpoint(7, {"x": torch.arange(3)}, keep=2)
    assert path.name == "step-000000007.pt"
    recorded = json.loads(path.with_suffix(".json").read_text())
    assert recorded == {"step": 7, "sha256": sha256(path)}


def test_without_checkpoints_there_is_none_to_load(run):
    assert run.load_checkpoint() is None


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (EncoderConfig(kind="conv", widths=(4, 8)), ConvNet),
        (EncoderConfig(dim=16, depth=2, heads=2, patch_size=4, image_size=8), ViT),
    ],
)
def test_an_encoder_comes_back_as_it_was(run, config, kind):
    encoder = build_encoder(config, channels=2).eval()
    assert isinstance(encoder, kind)
    with pytest.raises(UserError, match="holds no finished encoder"):
        run.load_encoder()
    run.save_encoder(encoder.state_dict(), {"channels": 2})
    weights, description = run.load_encoder()
    assert description == {"channels": 2}
    again = build_encoder(config, channels=2).eval()
    again.load_state_dict(weights)
    pictures = torch.randn(1, 2, 8, 8)
    assert torch.equal(again(pictures), encoder(pictures))


def test_an_encoder_that_cannot_be_written_leaves_the_old_one(run, monkeypatch):
    """The library behind this file has an error of its own for a full disk."""
    from safetensors import SafetensorError

    run.save_encoder({"x": torch.zeros(2)}, {})

    def full(tensors, path):
        path.write_bytes(b"half")
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    monkeypatch.setattr("wessl.run.folder.save_file", full)
    with pytest.raises(OSError, match=r"could not write .*encoder.safetensors: .*No space left"):
        run.save_encoder({"x": torch.ones(2)}, {})
    assert torch.equal(run.load_encoder()[0]["x"], torch.zeros(2))
    assert not list(run.path.glob(".*"))


def test_results_come_back_by_name(run):
    assert list(run.read_results()) == []
    run.save_result("knn", {"accuracy": 0.5})
    run.save_result("few-shot", {"accuracy": 0.25})
    assert list(run.read_results()) == [
        ("few-shot", {"accuracy": 0.25}),
        ("knn", {"accuracy": 0.5}),
    ]


SMALL = EncoderConfig(dim=64, depth=2, heads=1, patch_size=8, image_size=32, drop_path=0.0)


def small_vit() -> dict[str, torch.Tensor]:
    return build_encoder(SMALL, channels=3).state_dict()


def test_weights_with_timms_names_are_described_by_their_shapes(tmp_path):
    weights = small_vit()
    save_file(weights | {"head.weight": torch.zeros(5, 64)}, tmp_path / "vit.safetensors")
    state, description = read_weights(tmp_path / "vit.safetensors")
    assert all(torch.equal(state[name], weights[name]) for name in weights)
    assert from_dict(EncoderConfig, description["encoder"]) == SMALL
    assert (description["image_size"], description["resize"], description["channels"]) == (
        32,
        37,
        3,
    )
    assert description["left_out"] == {"head.weight": "head or classifier"}
    assert description["notes"][-1].startswith("normalisation is assumed: mean [0.485")


def test_a_dino_checkpoint_with_its_arguments_is_read_and_other_objects_are_not(tmp_path):
    weights = small_vit()
    teacher = {"backbone." + name: tensor for name, tensor in weights.items()}
    student = {"module.backbone." + name: tensor + 1 for name, tensor in weights.items()}
    saved = dict(teacher=teacher, student=student, args=argparse.Namespace(arch="vit"), epoch=3)
    torch.save(saved, tmp_path / "dino.pth")
    assert torch.equal(read_weights(tmp_path / "dino.pth")[0]["cls_token"], weights["cls_token"])
    state, description = read_weights(tmp_path / "dino.pth", "student")
    assert torch.equal(state["cls_token"], weights["cls_token"] + 1)
    assert description["left_out"] == {"teacher": f"another network ({len(weights)} tensors)"}
    torch.save(weights | {"model": ViT}, tmp_path / "object.pth")
    with pytest.raises(UserError, match=r"object.pth cannot be read.*save its state dict alone"):
        read_weights(tmp_path / "object.pth")


def test_dinov2_is_described_at_its_published_size(tmp_path):
    vit = ViT(dim=64, depth=1, heads=1, patch_size=14, image_size=518)
    torch.save(vit.state_dict(), tmp_path / "dinov2.pth")
    _, description = read_weights(tmp_path / "dinov2.pth")
    assert description["encoder"]["image_size"] == 518
    assert (description["image_size"], description["resize"]) == (224, 256)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("preprocessor_config.json", {"image_mean": [0.5] * 3, "image_std": [0.25] * 3}),
        ("config.json", {"pretrained_cfg": {"mean": [0.5] * 3, "std": [0.25] * 3}}),
    ],
)
def test_files_of_a_model_hub_beside_the_weights_tell_their_normalisation(tmp_path, name, content):
    save_file(small_vit(), tmp_path / "model.safetensors")
    write_json(tmp_path / name, content)
    _, description = read_weights(tmp_path / "model.safetensors")
    assert (description["mean"], description["std"]) == ([0.5] * 3, [0.25] * 3)


def test_the_number_of_heads_is_the_callers_or_the_files_beside(tmp_path):
    path = tmp_path / "model.safetensors"
    save_file(small_vit(), path)
    assert read_weights(path, heads=4)[1]["encoder"]["heads"] == 4
    write_json(tmp_path / "config.json", {"num_attention_heads": 2})
    assert read_weights(path)[1]["encoder"]["heads"] == 2


def test_what_a_file_of_weights_lacks_is_told_with_its_path(tmp_path):
    with pytest.raises(UserError, match=r"none.pth does not exist; give a run folder"):
        read_weights(tmp_path / "none.pth")
    (tmp_path / "text.pth").write_text("hello")
    with pytest.raises(UserError, match=r"text.pth cannot be read as weights"):
        read_weights(tmp_path / "text.pth")
    torch.save([torch.zeros(1)], tmp_path / "list.pth")
    with pytest.raises(UserError, match=r"list.pth holds a list, not tensors by name"):
        read_weights(tmp_path / "list.pth")
    weights = small_vit()
    del weights["blocks.0.norm1.bias"]
    torch.save(weights, tmp_path / "less.pth")
    with pytest.raises(UserError, match=r"less.pth: .*1 missing: blocks.0.norm1.bias"):
        read_weights(tmp_path / "less.pth")


def test_an_encoder_of_a_run_and_its_checkpoints_are_what_the_run_says(tmp_path):
    import wessl

    quick = dict(epochs=1, quiet=True, device="cpu")
    run = wessl.pretrain("builtin://digits/test", tmp_path / "run", **quick)
    finished, described = read_weights(run.path / "encoder.safetensors")
    checkpoint = next(run.checkpoints.glob("step-*.pt"))
    state, description = read_weights(checkpoint)
    assert state.keys() == finished.keys()
    assert all(torch.equal(state[name], finished[name]) for name in finished)
    told = ("encoder", "channels", "mean", "std", "image_size", "resize", "network")
    written = json.loads(json.dumps({name: description[name] for name in told}))
    assert written == {name: described[name] for name in told}
    other, student = read_weights(checkpoint, "student")
    assert student["network"] == "student"
    assert set(student["left_out"]) == {"student.heads", "teacher", "optimizer"}
    assert any(not torch.equal(other[name], finished[name]) for name in finished)
    with pytest.raises(UserError, match=r"encoder.safetensors is no student; give .*checkpoints"):
        read_weights(run.path / "encoder.safetensors", "student")
    torch.save({"step": 3}, run.checkpoints / "other.pt")
    with pytest.raises(UserError, match=r"a file without a teacher; give a step-\*\.pt"):
        read_weights(run.checkpoints / "other.pt")


def test_a_disk_that_holds_two_checkpoints_gives_up_the_older_for_a_new_one(tmp_path, monkeypatch):
    run = Run.create(tmp_path / "run", {})
    for step in (1, 2):
        run.save_checkpoint(step, {"step": step}, keep=2)
    room, write = 2, module.write_tensors

    def on_a_small_disk(path, state):
        if len(list(run.checkpoints.glob("step-*.pt"))) >= room:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, state)

    monkeypatch.setattr(module, "write_tensors", on_a_small_disk)
    run.save_checkpoint(3, {"step": 3}, keep=2)
    assert [p.name for p in sorted(run.checkpoints.glob("*.pt"))] == [
        "step-000000002.pt",
        "step-000000003.pt",
    ]
    room = 1  # nothing is left to give up: the newest stays
    (run.checkpoints / "step-000000002.pt").unlink()
    with pytest.raises(OSError, match="No space"):
        run.save_checkpoint(4, {"step": 4}, keep=2)
    assert run.load_checkpoint()["step"] == 3


def test_any_other_failure_to_write_costs_no_checkpoint(tmp_path, monkeypatch):
    run = Run.create(tmp_path / "run", {})
    for step in (1, 2):
        run.save_checkpoint(step, {"step": step}, keep=2)

    def broken(path, state):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(module, "write_tensors", broken)
    with pytest.raises(OSError, match="Input/output"):
        run.save_checkpoint(3, {"step": 3}, keep=2)
    assert len(list(run.checkpoints.glob("step-*.pt"))) == 2
