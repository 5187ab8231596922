"""Pre-training as a user calls it: what works, what resumes, and what each mistake is told."""

import json
import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from small_runs import DIGITS, QUICK, command, photographs, tiny

import wessl
from wessl import plan
from wessl.auto import DataFacts, small
from wessl.cli import main
from wessl.config import Config, LossConfig
from wessl.data.views.config import Crop, Views
from wessl.errors import UserError
from wessl.recipes import FAMILIES, names, recipe
from wessl.report.story import read
from wessl.settings import override, to_dict
from wessl.verbs.completion import flags_of
from wessl.verbs.launching.launched import launcher
from wessl.verbs.pretraining import checks, resume


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("WESSL_CACHE", str(tmp_path / "cache"))


ONLY_TARGETS = Views((Crop(32, 3, (0.5, 1.0), role="target"),))


def test_a_folder_of_photographs_becomes_an_encoder_with_timms_names(tmp_path):
    run = wessl.pretrain(photographs(tmp_path / "photos"), tmp_path / "run", **tiny())
    weights = load_file(run.path / "encoder.safetensors")
    assert {"cls_token", "pos_embed", "blocks.1.attn.qkv.weight", "norm.bias"} <= weights.keys()
    rows = run.read_metrics()
    assert any("probe" in row for row in rows)  # class folders: k-NN on the way
    assert all(np.isfinite(row["loss"]) for row in rows if "loss" in row)
    header = run.read_config()
    assert header["data"]["pictures"] == 24
    assert header["versions"]["torch"] == torch.__version__


def test_the_encoder_embeds_paths_images_and_arrays_alike(tmp_path):
    folder = photographs(tmp_path / "photos")
    run = wessl.pretrain(folder, tmp_path / "run", **tiny())
    encoder = wessl.load(run.path)
    paths = sorted(folder.rglob("*.png"))[:3]
    images = [Image.open(path) for path in paths]
    features = encoder.embed(paths)
    assert features.shape == (3, 24)
    torch.testing.assert_close(encoder.embed(paths[0]), features[:1])
    torch.testing.assert_close(encoder.embed(images), features)
    torch.testing.assert_close(encoder.embed([np.asarray(i) for i in images]), features)
    torch.testing.assert_close(wessl.load(run.path / "encoder.safetensors").embed(paths), features)
    with pytest.raises(UserError, match="uint8"):
        encoder.embed([np.zeros((4, 4, 3))])


def test_the_same_call_again_trains_nothing_and_a_changed_one_is_refused(tmp_path):
    run = wessl.pretrain("builtin://digits/test", tmp_path / "run", **QUICK)
    before = (run.path / "metrics.jsonl").read_text()
    drawn = (run.path / "report.html").stat().st_mtime_ns
    warned = (run.path / "train.log").read_text().count("warning: ")
    wessl.pretrain("builtin://digits/test", tmp_path / "run", **QUICK)
    assert (run.path / "metrics.jsonl").read_text() == before
    assert (run.path / "report.html").stat().st_mtime_ns == drawn
    assert (run.path / "train.log").read_text().count("warning: ") == warned
    (run.path / "report.html").unlink()
    wessl.pretrain("builtin://digits/test", tmp_path / "run", **QUICK)
    assert (run.path / "report.html").exists()
    with pytest.raises(UserError, match=r"optim.epochs: 1 in the run, 2 asked for"):
        wessl.pretrain("builtin://digits/test", tmp_path / "run", **QUICK | dict(epochs=2))
    with pytest.raises(UserError, match="begun on 500 pictures"):
        wessl.pretrain("builtin://digits/train", tmp_path / "run", **QUICK)
    both = r"(?s)optim.epochs: 1 in the run, 2 asked for.*It was also begun on 500 pictures of "
    with pytest.raises(UserError, match=both):
        wessl.pretrain("builtin://digits/train", tmp_path / "run", **QUICK | dict(epochs=2))
    with pytest.raises(UserError, match="begun from random weights, not --init"):
        wessl.pretrain("builtin://digits/test", tmp_path / "run", **QUICK, init=str(run.path))
    wessl.pretrain("builtin://digits/test", tmp_path / "run", **QUICK, log_every=7, keep=1)


def test_a_folder_in_use_or_holding_a_finished_encoder_is_left_alone(tmp_path):
    run = wessl.pretrain("builtin://digits/test", tmp_path / "run", **QUICK)
    with run.locked(), pytest.raises(UserError, match=r"is being trained by process \d+"):
        wessl.pretrain("builtin://digits/test", tmp_path / "run", **QUICK)
    begun = wessl.Run.create(tmp_path / "begun", {"config": "of the first"})  # no checkpoint yet
    with begun.locked(), pytest.raises(UserError, match="is being trained by process"):
        wessl.pretrain("builtin://digits/test", begun.path, **QUICK)
    assert begun.read_config() == {"config": "of the first"}
    before = (run.path / "encoder.safetensors").read_bytes()
    for path in run.checkpoints.iterdir():
        path.unlink()
    with pytest.raises(UserError, match="holds a finished encoder but no whole checkpoint"):
        wessl.pretrain("builtin://digits/test", tmp_path / "run", **QUICK | dict(seed=1))
    assert (run.path / "encoder.safetensors").read_bytes() == before


def test_a_run_killed_while_its_config_was_written_begins_anew(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".lock").touch()
    (tmp_path / "run" / ".config.json.4321.tmp").write_text('{"con')
    run = wessl.pretrain("builtin://digits/test", tmp_path / "run", **QUICK)
    assert (run.path / "encoder.safetensors").exists()


def test_a_run_stopped_before_its_first_checkpoint_begins_anew_and_says_so(tmp_path, capsys):
    run = wessl.pretrain("builtin://digits/test", tmp_path / "run", **QUICK)
    for path in [run.path / "encoder.safetensors", *run.checkpoints.iterdir()]:
        path.unlink()
    run.add_metrics({"step": 9999, "loss": 1.0})
    capsys.readouterr()
    wessl.pretrain("builtin://digits/test", run.path, **QUICK | dict(seed=1))
    words = f"{run.path} was begun, but stopped before its first checkpoint: begun anew"
    assert words in (run.path / "train.log").read_text()
    assert run.read_config()["config"]["seed"] == 1
    assert max(row["step"] for row in run.read_metrics()) < 9999
    for path in [run.path / "encoder.safetensors", *run.checkpoints.iterdir()]:
        path.unlink()
    (run.path / "config.json").write_text("x")
    with pytest.raises(UserError, match=r"config.json is damaged .*; restore it or use a new"):
        wessl.pretrain("builtin://digits/test", run.path, **QUICK)
    assert (run.path / "config.json").read_text() == "x"


def test_another_budget_is_told_as_such():
    old = dict(config=to_dict(Config()), request=dict(budget="4m"))
    with pytest.raises(UserError) as refused:
        resume.refuse_changes(old, override(Config(), {"optim.epochs": 7}), "run", "2m")
    assert "--budget: 4m in the run, 2m asked for, and with it\n  optim.epochs" in str(
        refused.value
    )


def test_a_strangers_folder_is_not_written_to(tmp_path):
    photographs(tmp_path / "photos")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text('{"mine": 1}')
    for out, words in (("photos", "is no run of wessl"), ("other", "config.json is not a run's")):
        before = sorted((tmp_path / out).rglob("*"))
        with pytest.raises(UserError, match=words):
            wessl.pretrain("builtin://digits/test", tmp_path / out, **QUICK)
        assert sorted((tmp_path / out).rglob("*")) == before
    assert (tmp_path / "other" / "config.json").read_text() == '{"mine": 1}'


def test_of_two_commands_that_begin_the_same_run_one_is_told_of_the_other(tmp_path):
    words = ["pretrain", "builtin://digits/test", "--out", str(tmp_path / "run"), "--epochs", "2"]
    two = [subprocess.Popen([sys.executable, "-m", "wessl", *words], stderr=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True) for _ in range(2)]  # fmt: skip
    said = [process.communicate() for process in two]
    codes = sorted(process.returncode for process in two)
    assert codes == [0, 2], said
    (refused,) = [s[1] for s, p in zip(said, two, strict=True) if p.returncode == 2]
    assert "is being trained by process" in refused or "begun by another command" in refused
    steps = [json.loads(x)["step"] for x in (tmp_path / "run/metrics.jsonl").open() if "loss" in x]
    assert steps == sorted(set(steps))


def test_training_starts_from_given_weights_or_says_what_does_not_fit(tmp_path):
    folder = photographs(tmp_path / "photos")
    first = wessl.pretrain(folder, tmp_path / "first", **tiny())
    still = tiny(lr=0.0, min_lr=0.0, weight_decay=0.0, weight_decay_end=0.0)
    weights = str(first.path / "encoder.safetensors")
    second = wessl.pretrain(folder, tmp_path / "second", **still, init=weights)
    old, new = (load_file(run.path / "encoder.safetensors") for run in (first, second))
    for name in old:
        torch.testing.assert_close(old[name], new[name])
    said = f"starting from {weights}: ViT 24 wide, 2 blocks, 2 heads, patches of 4"
    assert f"{said}; {len(old)} tensors" in (second.path / "train.log").read_text()
    deeper = tiny(**{"encoder.depth": 3})
    with pytest.raises(UserError, match=r"--init does not fit this encoder: missing \['blocks.2"):
        wessl.pretrain(folder, tmp_path / "third", **deeper, init=weights)
    with pytest.raises(UserError, match="does not exist"):
        wessl.pretrain(folder, tmp_path / "fourth", **tiny(), init=str(tmp_path / "none.pth"))


def test_a_published_recipe_takes_the_pictures_channels_and_the_devices_precision(tmp_path):
    small = tiny(batch_size=12, warmup_epochs=0) | {"encoder.image_size": 224}
    run = wessl.pretrain("builtin://digits/test", tmp_path / "run", "dino-star-ent/vits16", **small)
    config = run.read_config()["config"]
    assert (config["channels"], config["precision"]) == (1, "fp32")


def test_another_weighting_takes_its_own_gamma(tmp_path):
    settings = QUICK | dict(weighting="prob", epochs=0.1)
    run = wessl.pretrain("builtin://digits/test", tmp_path / "run", **settings)
    assert run.read_config()["config"]["loss"]["gamma"] is None
    assert run.read_metrics()[0]["gamma"] == 1.0


def test_every_choice_is_saved_with_its_reason_and_what_was_said_is_logged(tmp_path):
    run = wessl.pretrain("builtin://digits/test", tmp_path / "run", **QUICK)
    choices = {choice["setting"]: choice for choice in run.read_config()["choices"]}
    assert choices["heads.codes"]["value"] == 128
    assert choices["heads.share"]["value"] == "codebook"
    assert all(choice["reason"] for choice in choices.values())
    assert "no more than the 128 targets" in (run.path / "train.log").read_text()
    assert choices["decode"]["value"] == "once"
    assert choices["compile"]["value"] == "off"  # the device was asked for, and is no choice


def test_a_published_recipe_says_what_it_had_to_change(tmp_path, capsys):
    small = tiny(batch_size=12, warmup_epochs=0, quiet=False, device="auto", compile="off")
    small |= {"encoder.image_size": 224, "epochs": 0.1}
    run = wessl.pretrain("builtin://digits/test", tmp_path / "run", "dino-star-ent/vits16", **small)
    choices = {choice["setting"]: choice["value"] for choice in run.read_config()["choices"]}
    assert choices["channels"] == 1
    assert ("precision" in choices) == (not torch.cuda.is_available())
    assert {"device", "decode"} <= choices.keys()
    assert "the pictures', not the recipe's" in capsys.readouterr().err


def test_a_run_goes_on_with_what_it_was_sized_to_whatever_is_free_today(tmp_path):
    run = wessl.pretrain("builtin://digits/test", tmp_path / "run", **QUICK)
    header = run.read_config()
    begun = dict(header["facts"], memory_bytes=1000)  # a machine so small: a part a picture
    header["facts"], header["config"]["optim"]["accumulate"] = begun, 64
    (run.path / "config.json").write_text(json.dumps(header))
    wessl.pretrain("builtin://digits/test", tmp_path / "run", **QUICK | dict(codes=128))


def test_a_run_of_an_older_version_takes_todays_defaults_for_settings_it_did_not_know(tmp_path):
    run = wessl.pretrain("builtin://digits/test", tmp_path / "run", **QUICK)
    header = run.read_config()
    for name in ("schedule_stretch", "clip_codes"):
        del header["config"]["optim"][name]
    del header["facts"], header["data"]["sample"]
    (run.path / "config.json").write_text(json.dumps(header))
    for settings in (QUICK, QUICK | dict(codes=128)):  # the same request, and another
        wessl.pretrain("builtin://digits/test", tmp_path / "run", **settings)


def test_other_pictures_of_the_same_number_are_noticed(tmp_path):
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", images=rng.integers(0, 255, (60, 8, 8), dtype=np.uint8))
    wessl.pretrain(tmp_path / "a.npz", tmp_path / "run", **QUICK)
    with pytest.raises(UserError, match=r"are not the same"):
        wessl.pretrain(tmp_path / "b.npz", tmp_path / "run", **QUICK)


def test_a_run_in_which_every_step_is_nan_is_an_error(tmp_path, monkeypatch):
    settings = QUICK | dict(student_temperature=1e-45, epochs=0.2)
    with pytest.raises(UserError, match="NaN or infinite"):
        wessl.pretrain("builtin://digits/test", tmp_path / "run", **settings)


def test_what_cannot_work_is_refused_before_anything_is_printed_or_decoded(tmp_path, capsys):
    folder = photographs(tmp_path / "photos")
    for wrong in ({"encoder.heads": 5}, dict(batch_size=100), dict(init="none.pth")):
        with pytest.raises(UserError):
            wessl.pretrain(folder, tmp_path / "run", **tiny() | wrong | dict(quiet=False))
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"--out .*: .*file is a file, not a folder"):
        wessl.pretrain(folder, tmp_path / "file" / "run", **tiny())
    assert capsys.readouterr() == ("", "")
    assert not (tmp_path / "cache").exists()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write all")
def test_a_folder_that_may_not_be_written_is_refused_first(tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    with pytest.raises(UserError, match="you may not write in"):
        wessl.pretrain(photographs(tmp_path / "photos"), closed / "run", **tiny())
    assert not (tmp_path / "cache").exists()


def test_a_stray_picture_beside_class_folders_is_named_with_the_remedy(tmp_path, capsys):
    folder = photographs(tmp_path / "photos")
    Image.new("RGB", (40, 40)).save(folder / "stray.png")
    run = wessl.pretrain(folder, tmp_path / "run", **tiny(quiet=False))
    words = "no labels: stray.png lies beside the sub-folders"
    assert words in capsys.readouterr().err
    assert words in (run.path / "train.log").read_text()
    assert not any("probe" in row for row in run.read_metrics())
    with pytest.raises(UserError, match=r"--probe .* has no labels \(no labels: stray.png lies"):
        wessl.pretrain(folder, tmp_path / "other", **tiny(probe=str(folder)))


def test_unreadable_files_are_skipped_counted_and_named(tmp_path, capsys):
    folder = photographs(tmp_path / "photos")
    (folder / "cat" / "broken.jpg").write_bytes(b"not a picture")
    run = wessl.pretrain(folder, tmp_path / "run", **tiny(max_bad=0.1) | {"quiet": False})
    assert "pictures: 24 of 25, decoded" in capsys.readouterr().err
    data = run.read_config()["data"]
    assert (data["pictures"], data["skipped"]) == (24, 1)
    assert "broken.jpg" in (run.path / "train.log").read_text()
    with pytest.raises(UserError, match=r"broken.jpg"):
        wessl.pretrain(folder, tmp_path / "other", **tiny(max_bad=0.0))


@pytest.mark.parametrize("method", ["dino-star", "dino-star-prob", "msn-star-ent"])
def test_every_starred_method_has_automatic_sizes(tmp_path, method):
    run = wessl.pretrain(photographs(tmp_path / "photos"), tmp_path / "run", method, **tiny())
    assert run.read_config()["config"]["recipe"] == f"{method}/auto"


@pytest.mark.parametrize("name", ["dino/vits16", "msn/vits16", "dino-star-ent/vits16"])
def test_published_recipes_run_when_made_small(tmp_path, name):
    small = tiny(epochs=1, batch_size=12, warmup_epochs=0, drop_path=0.1)
    small |= {"precision": "fp32", "short_side": 40}
    run = wessl.pretrain(photographs(tmp_path / "photos"), tmp_path / "run", name, **small)
    assert (run.path / "encoder.safetensors").exists()


@pytest.mark.parametrize(
    ("data", "settings", "words"),
    [
        ("nowhere", {}, "nowhere does not exist"),
        ("empty", {}, "empty"),
        ("one", {}, "at least 2"),
        ("photos", dict(batch_size=100), "a batch of 100 cannot be drawn from 24 pictures"),
        ("photos", {"encoder.patch_size": 64}, "smaller than a patch of 64"),
        ("photos", dict(epoch=3), "unknown setting 'epoch'"),
        ("photos", dict(device="tpu9"), "--device 'tpu9' is not a device"),
        ("photos", dict(budget="soon"), "--budget 'soon' is not a time"),
        ("photos", dict(budget=1e-6), "--budget"),
        ("photos", dict(recipe="dino-star-entt"), "did you mean"),
        ("photos", dict(log_every=0), "--log-every must be at least 1, got 0"),
        ("photos", dict(batch_size=8, accumulate=3), "--optim.accumulate 3 does not divide"),
        ("photos", dict(views=Views((Crop(32, 1, (0.5, 1)),))), "1 of role global alone the stud"),
        ("photos", dict(views=ONLY_TARGETS), "3 of role target alone the student has no view"),
        (
            "photos",
            dict(recipe="msn/vits16", precision="fp32", batch_size=4, accumulate=4),
            "--heads.batch-norm needs two views at a time",
        ),
        ("photos", {"heads.count": 0}, "--heads.count must be at least 1, got 0"),
        (
            "photos",
            {"encoder.image_size": -3},
            "--encoder.image-size must be at least 1 and at most 4096, got -3",
        ),
        ("photos", dict(lr=-1.0), "--optim.lr must be at least 0, got -1.0"),
        ("photos", dict(weighting="bogus"), "--loss.weighting 'bogus' is unknown"),
        ("photos", {"encoder.heads": 5}, "not a multiple of heads 5"),
        ("photos", dict(epochs=3, budget="9h"), "give one of them"),
        ("photos", dict(probe="flat"), "--probe .* has no labels"),
        ("photos", dict(device="meta"), "--device 'meta' is not a device"),
        ("photos", dict(workers=-1), "--workers must be at least 0, got -1"),
        ("photos", dict(keep=0), "--keep must be at least 1, got 0"),
        ("photos", dict(epochs=0.0), "--epochs must be more than 0, got 0.0"),
        ("photos", dict(probe_every=0.0), "--probe-every must be more than 0"),
        ("photos", dict(decode="twice"), "options.decode must be one of 'auto', 'once', 'stream'"),
        ("photos", dict(schedule_stretch=0.0), "--optim.schedule-stretch must be more than 0"),
        ("photos", {"mask": 0.9, "encoder.patch_size": 20}, "--loss.mask 0.9 leaves no patch"),
    ],
)
def test_a_users_mistake_is_named_and_leaves_nothing_behind(tmp_path, data, settings, words):
    photographs(tmp_path / "photos")
    photographs(tmp_path / "one", n=1, classes=("cat",))
    photographs(tmp_path / "flat", n=4, classes=(".",))
    (tmp_path / "empty").mkdir()
    settings = tiny() | settings
    if "probe" in settings:
        settings["probe"] = str(tmp_path / "flat")
    with pytest.raises(UserError, match=words):
        wessl.pretrain(tmp_path / data, tmp_path / "run", **settings)
    assert not (tmp_path / "run").exists()


def test_the_command_trains_resumes_and_exits_with_two_for_a_mistake(tmp_path):
    words = ["pretrain", "builtin://digits/test", "--out", tmp_path / "run", "--optim.epochs", 1]
    code, out, _ = command(*words)
    assert code == 0, out
    assert "encoder.safetensors" in out
    assert re.search(r"^found:   k-NN accuracy ", out, re.MULTILINE)
    config = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert (config["optim"]["epochs"], config["optim"]["warmup_epochs"]) == (1, 0.1)
    assert config["heads"]["share"] == "codebook"
    code, _, complaint = command(*words, "--heads.share", "nothing")
    assert code == 2
    assert "--heads.share must be projection, codebook or None, not 'nothing'" in complaint
    code, _, complaint = command(*words, "--heads.share", "None")
    assert "heads.share: 'codebook' in the run, None asked for" in complaint
    code, _, complaint = command(*words, "--heads.codes", 64)
    assert code == 2
    assert "heads.codes: 128 in the run, 64 asked for" in complaint
    begun = shlex.join(["python", "-m", "wessl", *map(str, words)])
    assert complaint.endswith(f"The run was begun with:\n  {begun}\n")
    code, _, complaint = command(*words[:1], "builtin://digits/train", *words[2:])
    assert code == 2
    assert complaint.endswith(f"or choose a new --out\nThe run was begun with:\n  {begun}\n")
    code, _, complaint = command(*words, "--optim.epochz", 3)
    assert code == 2
    assert "epochz" in complaint
    code, _, complaint = command("pretrain", tmp_path / "none", "--out", tmp_path / "x")
    assert code == 2
    assert "does not exist" in complaint
    assert "Traceback" not in complaint


def test_the_commands_help_fits_one_screen_and_names_only_flags_there_are():
    code, out, _ = command("pretrain", "--help")
    assert code == 0
    assert len(out.splitlines()) <= 40
    assert max(map(len, out.splitlines())) <= 88
    named = set(re.findall(r"--[a-z][a-z.-]*", out))
    assert {"--out", "--budget", "--init", "--heads.count", "--help-all"} <= named
    assert named <= set(flags_of("pretrain"))


def test_the_whole_help_shows_flags_and_settings():
    code, out, _ = command("pretrain", "--help-all")
    assert code == 0
    for flag in ("--out", "--recipe", "--budget", "--optim.lr", "--loss.weighting", "--device"):
        assert flag in out
    said = " ".join(out.split())
    assert "Shown are the values of dino-star-ent/vits16, from which --recipe auto starts" in said
    assert "(default: 16)" in said  # heads


def test_the_help_of_a_recipe_shows_its_values():
    code, out, _ = command("pretrain", "photos/", "--recipe", "msn/vitb16", "--help-all")
    said = " ".join(out.split())
    assert code == 0
    assert "Shown are the values of msn/vitb16." in said
    for default in ("(default: 1.25)", "(default: 600)", "(default: 2048)", "(default: linear)"):
        assert default in said
    code, _, complaint = command("pretrain", "--recipe=msm/vitb16", "--help-all")
    assert code == 2
    assert "did you mean 'msn/vitb16'" in complaint


def test_a_gamma_of_ones_own_stays_with_a_new_weighting_whatever_it_is():
    base = recipe("dino-star-ent/vits16")
    for gamma in (base.loss.gamma, 0.07):
        changes = {"loss.weighting": "prob", "loss.gamma": gamma}
        assert plan.settle(base, lambda c, x=changes: override(c, x)).loss.gamma == gamma
    default = plan.settle(base, lambda c: override(c, {"loss.weighting": "prob"}))
    assert default.loss.gamma is None


def test_a_run_keeps_its_precision_whatever_would_be_chosen_today(tmp_path, monkeypatch):
    monkeypatch.setattr(plan, "has_bf16", lambda device: True)
    digits, out = "builtin://digits/test", tmp_path / "run"
    wessl.pretrain(digits, out, precision="fp32", **QUICK)
    run = wessl.pretrain(digits, out, **QUICK)
    assert run.read_config()["config"]["precision"] == "fp32"
    with pytest.raises(UserError, match="precision: 'fp32' in the run, 'bf16' asked for"):
        wessl.pretrain(digits, out, precision="bf16", **QUICK)


@pytest.mark.parametrize(
    ("recorded", "typed"),
    [
        ("bin/wessl pretrain 'my photos' --out r", "bin/wessl pretrain 'my photos' --out r"),
        ("/opt/lib/wessl/__main__.py pretrain p", "python -m wessl pretrain p"),
        ("train.py --fast", "python train.py --fast"),
        ("/opt/lib/wessl/verbs/launching/launch.py /tmp/gone/call", None),
        ("/opt/lib/ipykernel_launcher.py -f /home/me/kernel-1.json", None),
        ("/opt/lib/ipykernel/__main__.py -f /home/me/kernel-1.json", None),
        ("/opt/lib/colab_kernel_launcher.py -f /home/me/kernel-1.json", None),
        ("/opt/bin/ipython", None),
        ("-c", None),
        ("''", None),
        (None, None),
    ],
)
def test_a_refused_run_is_told_with_its_command_where_that_can_be_typed(recorded, typed):
    old = dict(command=recorded, config=to_dict(Config()), init=None)
    words = "" if typed is None else f"\nThe run was begun with:\n  {typed}"
    with pytest.raises(UserError) as refused:
        resume.refuse_changes(old, Config(seed=1), "run")
    assert str(refused.value).endswith(f"or choose a new --out{words}")
    with pytest.raises(UserError) as refused:
        resume.refuse_other_init(old, __file__, "run")
    assert str(refused.value).endswith(f"; choose a new --out{words}")


TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "TORCHELASTIC_RUN_ID": "none"}
TWO_HOSTS = TORCHRUN | {"LOCAL_WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "2"}
SRUN = {
    "SLURM_PROCID": "0",
    "SLURM_STEP_NUM_TASKS": "8",
    "SLURM_LOCALID": "0",
    "SLURM_STEP_NODELIST": "gpu07",
    "SLURM_JOB_ID": "4321",
}
MEET = "--rdzv-backend=c10d --rdzv-endpoint=HOST:PORT"


@pytest.mark.parametrize(
    ("environment", "recorded", "typed"),
    [
        (
            TORCHRUN,
            "wessl/__main__.py pretrain p",
            "torchrun --nproc-per-node=4 -m wessl pretrain p",
        ),
        (TORCHRUN, "train.py --fast", "torchrun --nproc-per-node=4 train.py --fast"),
        (TORCHRUN, "bin/wessl pretrain p", "torchrun --nproc-per-node=4 bin/wessl pretrain p"),
        (TWO_HOSTS, "train.py", f"torchrun --nnodes=2 --nproc-per-node=2 {MEET} train.py"),
        (SRUN, "bin/wessl pretrain p", "srun --ntasks=8 bin/wessl pretrain p"),
        (SRUN, "wessl/__main__.py pretrain p", "srun --ntasks=8 python -m wessl pretrain p"),
        (TORCHRUN | {"WORLD_SIZE": "1"}, "train.py", "python train.py"),
        (TORCHRUN | {"WESSL_LAUNCHED": "7"}, "train.py --devices 4", "python train.py --devices 4"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "train.py", "python train.py"),
        ({}, "train.py", "python train.py"),
    ],
)
def test_a_refused_run_is_told_with_its_launcher_too(environment, recorded, typed):
    old = dict(command=recorded, launcher=launcher(environment), config=to_dict(Config()))
    with pytest.raises(UserError) as refused:
        resume.refuse_changes(old, Config(seed=1), "run")
    assert str(refused.value).endswith(f"\nThe run was begun with:\n  {typed}")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss.weighting": "prob", "loss.gamma_start": 0.4}, "start 0.4 .* no gamma that falls; "),
        ({"loss.weighting": "prob-te", "loss.gamma_epochs": 5}, "epochs 5 changes nothing: .* ent"),
        ({"loss.weighting": "unif", "loss.gamma_start": 0.4}, "unif has no gamma; leave it out, "),
        ({"loss.weighting": "unif", "loss.gamma": 0.4}, "--loss.gamma 0.4 .* unif has no gamma; "),
        ({"loss.weighting": "unif-all", "loss.gamma": 0.4}, "--loss.weighting unif-all has no g"),
        ({"loss.weighting": "prob-max", "loss.gamma": 0.4}, "--loss.weighting prob-max has no g"),
        ({"heads.count": 1, "loss.gamma_start": 0.4}, "one head has no weights; leave it out, "),
        ({"heads.count": 1, "loss.gamma": 0.4}, "--loss.gamma 0.4 .* choose more --heads.count$"),
        (
            {"heads.count": 1, "loss.gamma": 0.4, "loss.gamma_epochs": 5},
            "--loss.gamma 0.4, --loss.gamma-epochs 5 change nothing: .* leave them out",
        ),
        ({"loss": LossConfig("unif", gamma=0.4)}, "--loss.gamma 0.4 changes nothing"),
        ({"loss.gamma": 0.4, "loss.gamma_epochs": 5}, None),
        ({"loss.weighting": "prob", "loss.gamma_epochs": 30}, None),
        ({"loss.weighting": "unif", "loss.gamma": None}, None),
        ({"loss.weighting": "prob"}, None),
        ({"loss.weighting": "prob", "loss.gamma": 2.0}, None),
        ({"heads.count": 1}, None),
    ],
)
def test_settings_of_gamma_that_change_nothing_are_warned_of(changes, words):
    config = override(Config(), {"heads.count": 2} | changes)
    said = checks.gamma_in_vain(config, changes)
    assert said is None if words is None else re.search(f"^warning: .*{words}", said)
    assert checks.gamma_in_vain(config, ["heads.count", "loss.weighting"]) is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"loss.gamma_start": 0.04}, "0.04 is below --loss.gamma 0.05, .* 0.05 from the first"),
        ({"loss.gamma": 0.7}, "--loss.gamma-start 0.5 is below --loss.gamma 0.7, and gamma only f"),
        ({"loss.gamma_start": 0.4}, None),
        ({"loss.gamma_start": 0.05}, None),
        ({"loss.weighting": "prob"}, None),
        ({"loss.weighting": "prob", "loss.gamma": 2.0}, None),
        ({"heads.count": 1}, None),
    ],
)
def test_a_start_of_gamma_below_its_end_is_warned_of(changes, words):
    said = checks.gamma_only_falls(override(Config(), {"heads.count": 2} | changes))
    assert said is None if words is None else re.search(f"^warning: .*{words}", said)


@pytest.mark.parametrize(
    ("weight", "temperature", "words"),
    [
        (1.0, 0.025, "me-max 1 is little beside a teacher 4 times .* more than 3, .* above 0.05, "),
        (2.0, 0.025, "take more than 3, a --loss.teacher-temperature above 0.0334, "),
        (3.0, 0.025, "take more than 3, a --loss.teacher-temperature above 0.025, "),
        (0.0, 0.03, "take more than 2.34, a --loss.teacher-temperature above 0.1, "),
        (3.01, 0.025, None),
        (2.0, 0.0335, None),
        (4.0, 0.025, None),
    ],
)
def test_a_teacher_that_little_holds_is_warned_of(weight, temperature, words):
    settings = {"loss.me_max": weight, "loss.teacher_temperature": temperature}
    config = override(Config(), {"loss.target": "none"} | settings)
    said = checks.unheld(config)
    assert said is None if words is None else re.search(f"^warning: .*{words}", said)
    for held in ("sinkhorn", "centering"):
        assert checks.unheld(override(config, {"loss.target": held})) is None


def test_no_recipe_is_warned_of_its_teacher():
    assert not [name for name in names() if checks.unheld(recipe(name))]


GAMMA = ["loss.gamma", "loss.gamma_start", "loss.gamma_epochs"]


def test_no_recipe_has_a_gamma_in_vain():
    digits = DataFacts(1000, 8, 8, channels=1, device="cpu", memory_bytes=8 << 30)
    photos = DataFacts(10**6, 375, 500, channels=3, device="cuda", memory_bytes=80 << 30)
    sized = [
        small(family, facts)[0]
        for family in FAMILIES
        if family not in ("dino", "msn")
        for facts in (digits, photos)
    ]
    for config in [recipe(name) for name in names()] + sized:
        assert checks.gamma_in_vain(config, GAMMA) is None
        assert checks.gamma_only_falls(config) is None


def test_a_gamma_in_vain_is_told_before_training(tmp_path, capsys):
    asked = QUICK | {"quiet": False, "weighting": "prob", "gamma_start": 0.3, "heads.count": 2}
    wessl.pretrain("builtin://digits/test", tmp_path / "run", **asked)
    words = "warning: --loss.gamma-start 0.3 changes nothing: --loss.weighting prob has no gamma"
    assert words in capsys.readouterr().err
    flags = ["--heads.count", "1", "--loss.gamma_epochs", "2", "--loss.gamma=0.3", "--epochs", "1"]
    with pytest.raises(SystemExit) as left:
        main([*DIGITS[:2], "--out", str(tmp_path / "typed"), "--device", "cpu", *flags])
    assert not left.value.code
    words = "warning: --loss.gamma 0.3, --loss.gamma-epochs 2 change nothing: one head has no"
    assert words in capsys.readouterr().err


def test_a_run_from_before_me_max_was_weighted_goes_on_as_it_was():
    several = override(Config(), {"loss.me_max": 4.0, "heads.count": 8})
    old = dict(config=to_dict(several))
    del old["config"]["loss"]["me_max_heads"]
    assert resume.config_of(old).loss.me_max_heads == "alike"
    with pytest.raises(UserError, match="me_max_heads: 'alike' in the run, 'weighted' asked for"):
        resume.refuse_changes(old, several, "run")
    resume.refuse_changes(old, override(several, {"loss.me_max_heads": "alike"}), "run")


@pytest.mark.parametrize("heads", ["weighted", "alike"])
def test_how_me_max_is_weighted_is_no_change_where_nothing_is(heads):
    one = override(Config(), {"loss.me_max": 4.0, "heads.count": 1})
    old = dict(config=to_dict(override(one, {"loss.me_max_heads": heads})))
    resume.refuse_changes(old, one, "run")


def test_a_gamma_of_the_recipe_s_own_is_not_told_of(tmp_path, capsys):
    asked = QUICK | {"quiet": False, "heads.count": 1}
    run = wessl.pretrain("builtin://digits/test", tmp_path / "run", "msn-star-ent", **asked)
    loss = run.read_config()["config"]["loss"]
    assert (loss["gamma"], loss["gamma_epochs"]) == (0.01, 0.3)
    assert "nothing: " not in capsys.readouterr().err


def test_few_photographs_are_called_few_unless_they_begin_with_weights(tmp_path, capsys):
    photographs(tmp_path / "photos")
    first = wessl.pretrain(tmp_path / "photos", tmp_path / "run", **tiny(quiet=False))
    assert "photographs are few to learn from alone" in capsys.readouterr().err
    init = first.path / "encoder.safetensors"
    wessl.pretrain(tmp_path / "photos", tmp_path / "more", init=init, **tiny(quiet=False))
    assert "few to learn from alone" not in capsys.readouterr().err
    photos = DataFacts(5000, 375, 500, channels=3, device="cpu", memory_bytes=8 << 30)
    assert checks.few_photographs(photos) is None
    assert checks.few_photographs(replace(photos, pictures=4999)) is not None
    assert checks.few_photographs(replace(photos, pictures=99, height=8, channels=1)) is None


@pytest.mark.parametrize("data", ["builtin://digits/test", "photos"])
def test_a_budget_for_few_steps_is_told_once_with_one_that_is_enough(tmp_path, capsys, data):
    photographs(tmp_path / "photos")
    source = data if "://" in data else tmp_path / data
    settings = {"heads.count": 2, "device": "cpu"} if "://" in data else tiny(quiet=False)
    settings.pop("epochs", None)
    with pytest.raises(UserError, match="less than one epoch") as refused:
        wessl.pretrain(source, tmp_path / "run", budget=0.01, **settings)
    asked = float(re.search(r"allow --budget (\d+)s or more", str(refused.value))[1]) / 2
    run = wessl.pretrain(source, tmp_path / "run", budget=asked, **settings)
    lines = capsys.readouterr().err.splitlines()
    (warned,) = [line for line in lines if "too few to learn much" in line]
    assert re.fullmatch(
        r"warning: --budget of \d+ s allows \d+ epochs? of \d+ pictures in batches of \d+, which "
        r"makes \d+ steps?, too few to learn much; allow --budget \d+s or more: "
        r"\d+ epochs, 1\d\d steps",
        warned,
    )
    assert "--epochs" not in "".join(lines)
    (chosen,) = [c for c in run.read_config()["choices"] if c["setting"] == "optim.epochs"]
    assert chosen["warning"]


def test_each_start_that_trains_tells_the_log_so_and_the_report_its_warnings(tmp_path):
    def starts():
        run = wessl.pretrain("builtin://digits/test", tmp_path / "run", **QUICK)
        (story,) = read([run.path])
        return run, (run.path / "train.log").read_text().count("  start: "), story.warnings

    run, count, warned = starts()
    assert count == 1
    assert any("too few to learn much" in words for words in warned)
    run.log("warning: this will take longer than its budget")
    assert starts()[1:] == (1, [*warned, "this will take longer than its budget"])
    (run.path / "encoder.safetensors").unlink()
    assert starts()[1:] == (2, warned)


def test_a_run_of_few_steps_is_warned_of(tmp_path, capsys):
    wessl.pretrain("builtin://digits/test", tmp_path / "run", **QUICK | dict(quiet=False))
    assert "too few to learn much" in capsys.readouterr().err


def test_views_that_cannot_fit_are_refused_before_anything_is_written(tmp_path):
    huge = {"encoder.kind": "vit", "encoder.patch_size": 4, "encoder.image_size": 4096}
    with pytest.raises(UserError, match=r"even one picture at a time takes about .* GB"):
        wessl.pretrain("builtin://digits/test", tmp_path / "run", device="cpu", epochs=1, **huge)
    with pytest.raises(UserError, match=r"image.size.* 4,?096"):
        wessl.pretrain("builtin://digits/test", tmp_path / "run", **{"encoder.image_size": 5000})
    assert not (tmp_path / "run").exists()
