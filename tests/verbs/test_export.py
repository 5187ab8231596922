"""``wessl export`` from end to end, and what happens when it cannot."""

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from small_runs import command, photographs, tiny

import wessl
from wessl.evaluate.table import with_interval


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    home = tmp_path_factory.mktemp("runs")
    pictures = photographs(home / "pictures", n=16)
    small = tiny(**{"encoder.kind": "vit", "encoder.patch_size": 8}, cache=str(home / "cache"))
    trained = wessl.pretrain(str(pictures), home / "photos", workers=0, **small)
    wessl.evaluate(trained, str(pictures), protocols=["1-shot", "k-NN"], cache=home / "cache")
    return trained


def left_behind(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith("."))


def test_the_command_exports_a_trained_run_and_says_how_to_load_it(run, tmp_path):
    out = tmp_path / "new" / "hf"
    code, said, wrong = command("export", run.path, "--to", "hf", "-o", out)
    assert (code, wrong) == (0, "")
    assert said.startswith(f"export: {out}\n")
    assert f"AutoModel.from_pretrained('{out}')" in said
    names = ["README.md", "config.json", "model.safetensors", "preprocessor_config.json"]
    assert sorted(path.name for path in out.glob("[!.]*")) == names
    assert f"  config.json  {(out / 'config.json').stat().st_size} bytes\n" in said
    images = torch.rand(2, 3, 40, 40)
    assert torch.equal(wessl.load(out)(images), wessl.load(run.path)(images))


def test_the_card_tells_data_training_and_results_with_their_protocols(run):
    text = (wessl.export(run, "timm") / "README.md").read_text()
    told = run.read_config()
    assert "16 colour pictures, “pictures”" in text
    assert str(run.path.parent) not in text  # a card may be published
    assert f"`{told['config']['recipe']}`: 2 heads of 8 codes" in text
    assert "mean 0.485, 0.456, 0.406; standard deviation 0.229, 0.224, 0.225" in text
    (result,) = run.results.glob("evaluation-*.json")
    measured = json.loads(result.read_text())["rows"][0]["results"]
    row = next(line for line in text.splitlines() if "**this encoder**" in line)
    for name in ("1-shot", "k-NN"):
        assert with_interval(measured[name]["accuracy"], measured[name]["interval"]) in row
    assert "test pictures of 2 classes" in text
    assert "Licence of these weights: _to be filled in" in text


def test_the_card_leads_with_the_encoder_as_it_is_and_marks_other_sizes(run, tmp_path):
    copy = wessl.Run(shutil.copytree(run.path, tmp_path / "copy"))
    (path,) = copy.results.glob("evaluation-*.json")
    larger = json.loads(path.read_text())
    larger["test"] |= dict(pictures=4321, seen_at=64)
    copy.save_result("evaluation-zz", larger)
    text = (wessl.export(copy, "timm", tmp_path / "out") / "README.md").read_text()
    assert text.index("Accuracy in %:") < text.index("Accuracy in %, seen at 64 pixels:")


def test_the_card_leads_with_the_largest_test_and_keeps_warnings_and_doubts(run, tmp_path):
    copy = wessl.Run(shutil.copytree(run.path, tmp_path / "copy"))
    (path,) = copy.results.glob("evaluation-*.json")
    small = json.loads(path.read_text())
    large = json.loads(path.read_text())
    large["test"] |= dict(pictures=4321, location="/home/ann/large")
    large["notes"] = ["warning: 3 test pictures are also elsewhere (/home/ann/a.png): too good"]
    large["rows"][0]["results"]["1-shot"]["protocol"]["strength_chosen"] = "on the test pictures"
    copy.save_result("evaluation-zz", large)
    text = (wessl.export(copy, "timm", tmp_path / "out") / "README.md").read_text()
    assert text.index("4321 test pictures") < text.index(f"{small['test']['pictures']} test pict")
    assert "- warning: 3 test pictures are also elsewhere (a.png): too good" in text
    assert "| 1-shot (optimistic) |" in text
    assert "/home/ann" not in text


def test_results_of_other_weights_are_not_this_encoders(run, tmp_path):
    other = wessl.Run.create(tmp_path / "other", run.read_config())
    weights, described = run.load_encoder()
    other.save_encoder({name: 2 * tensor for name, tensor in weights.items()}, described)
    for name, result in run.read_results():
        other.save_result(name, result)
    (other.results / "broken.json").write_text("{")
    text = (wessl.export(other, "timm") / "README.md").read_text()
    assert "**this encoder**" not in text
    assert r"broken.json: damaged" in text
    assert "of other weights" in text


@pytest.mark.parametrize("to", ["timm", "hf", "onnx"])
def test_whoever_may_read_new_files_may_read_all_of_an_export(run, tmp_path, to):
    usual = os.umask(0o027)
    try:
        files = list(wessl.export(run, to, tmp_path / "out").iterdir())
    finally:
        os.umask(usual)
    assert len(files) > 1
    assert {file.name: oct(file.stat().st_mode & 0o777) for file in files} == dict.fromkeys(
        (file.name for file in files), oct(0o640)
    )


def test_what_stands_there_is_replaced_only_when_asked(run, tmp_path):
    out = wessl.export(run, "timm", tmp_path / "out")
    (out / "README.md").write_text("mine")
    (weights,) = out.glob("*.safetensors")
    weights.write_bytes(b"damaged")
    with pytest.raises(wessl.UserError, match=r"exists; name another folder.*--overwrite"):
        wessl.export(run, "timm", out)
    assert (out / "README.md").read_text() == "mine"
    wessl.export(run, "timm", out, overwrite=True)
    assert (out / "README.md").read_text().startswith("---\n")
    assert load_file(weights).keys() == run.load_encoder()[0].keys()
    wessl.export(run, "hf", out, overwrite=True)
    assert not weights.exists()
    assert left_behind(tmp_path) == []


def test_a_folder_with_anything_else_in_it_is_never_replaced(run, tmp_path):
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(wessl.UserError, match=r"holds thesis\.tex, which no export wrote"):
        wessl.export(run, "timm", tmp_path, overwrite=True)
    with pytest.raises(wessl.UserError, match=r"thesis\.tex is no folder"):
        wessl.export(run, "timm", tmp_path / "thesis.tex", overwrite=True)
    with pytest.raises(wessl.UserError, match="which no export wrote"):
        wessl.export(run, "timm", run.path, overwrite=True)
    assert (tmp_path / "thesis.tex").exists()


def test_names_like_an_exports_do_not_make_one_and_its_own_source_is_never_replaced(run, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    for name in ("README.md", "config.json", "best.safetensors"):
        (mine / name).write_text("mine")
    with pytest.raises(wessl.UserError, match=r"holds README\.md, which no export wrote"):
        wessl.export(run, "timm", mine, overwrite=True)
    assert {path.read_text() for path in mine.iterdir()} == {"mine"}

    first = wessl.export(run, "hf", tmp_path / "hf")
    weights = (first / "model.safetensors").read_bytes()
    with pytest.raises(wessl.UserError, match="and that would be lost"):
        wessl.export(first / "model.safetensors", "timm", first, overwrite=True)
    assert (first / "model.safetensors").read_bytes() == weights
    shutil.copy(first / "model.safetensors", first / "copy.safetensors")
    with pytest.raises(wessl.UserError, match=r"holds copy\.safetensors, which no export wrote"):
        wessl.export(run, "hf", first, overwrite=True)


@pytest.mark.parametrize("there", [False, True])
def test_a_full_disk_leaves_what_was_there(run, tmp_path, monkeypatch, there):
    out = tmp_path / "out"
    if there:
        wessl.export(run, "timm", out)
    before = {path.name: path.read_bytes() for path in out.iterdir()} if there else {}

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(wessl.UserError, match=r"-o .*out: cannot be written.*No space left") as e:
        wessl.export(run, "hf", out, overwrite=True)
    assert e.value.exit_code == 1
    after = {path.name: path.read_bytes() for path in out.iterdir()} if out.exists() else {}
    assert (after, left_behind(tmp_path)) == (before, [])


def test_a_disk_that_takes_half_a_file_keeps_none(run, tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    out = tmp_path / "new" / "out"
    code, _, wrong = command("export", run.path, "--to", "hf", "-o", out, preexec_fn=limit)
    assert (code, list(tmp_path.iterdir())) == (1, [])
    assert f"-o {out}: cannot be written" in wrong
    assert "File too large" in wrong


def test_an_export_that_is_stopped_leaves_nothing(run, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "wessl", "export", run.path, "--to", "onnx", "-o", tmp_path / "out"],
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while process.poll() is None and left_behind(tmp_path) == []:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGTERM)
    assert "stopped by SIGTERM" in process.communicate()[1]
    assert process.returncode == 128 + signal.SIGTERM
    assert list(tmp_path.iterdir()) == []


def test_mistakes_are_named(run, tmp_path):
    with pytest.raises(wessl.UserError, match="nowhere does not exist; give a run folder"):
        wessl.export(tmp_path / "nowhere", "timm")
    with pytest.raises(wessl.UserError, match="is no run folder; train one first"):
        wessl.export(tmp_path, "timm")
    with pytest.raises(wessl.UserError, match=r"no run folder|holds no finished encoder"):
        wessl.export(wessl.Run.create(tmp_path / "young", run.read_config()), "timm")
    with pytest.raises(wessl.UserError, match="--to keras: unknown format; choose one of timm"):
        wessl.export(run, "keras")
    with pytest.raises(wessl.UserError, match="--normalise is for --to onnx"):
        wessl.export(run, "hf", normalise=True)
    with pytest.raises(wessl.UserError, match="-o is needed"):
        wessl.export(run.path / "encoder.safetensors", "hf")
    (tmp_path / "file").touch()
    with pytest.raises(wessl.UserError, match=r"-o .*file/out: cannot be written"):
        wessl.export(run, "hf", tmp_path / "file" / "out")
    code, _, wrong = command("export", run.path, "--to", "keras")
    assert code == 2
    assert "keras" in wrong


def test_a_package_that_is_missing_is_named_before_any_work(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(wessl.UserError, match=r"needs onnxscript; .* pip install 'wessl\[onnx\]'"):
        wessl.export(run, "onnx")


@pytest.mark.parametrize("name", ["encoder.safetensors", "encoder.json"])
def test_a_damaged_encoder_is_named_and_nothing_written(run, tmp_path, name):
    broken = wessl.Run.create(tmp_path / "run", run.read_config())
    broken.save_encoder(*run.load_encoder())
    (broken.path / name).write_bytes((broken.path / name).read_bytes()[:100])
    with pytest.raises(wessl.UserError, match="its encoder is damaged"):
        wessl.export(broken, "timm")
    assert not (broken.path / "export").exists()


def test_a_file_of_weights_is_exported_with_a_card_that_claims_nothing(run, tmp_path):
    timm = wessl.export(run, "timm", tmp_path / "timm")
    (weights,) = timm.glob("*.safetensors")
    folder = wessl.export(weights, "hf", tmp_path / "hf")
    images = torch.rand(2, 3, 40, 40)
    assert torch.equal(wessl.load(folder)(images), wessl.load(run.path)(images))
    assert (folder / "README.md").read_text().count("Not known: the weights came as a file.") == 2
