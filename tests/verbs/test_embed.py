"""Embedding as a user asks for it: by command and call, killed, mistaken, out of space."""

import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from small_runs import photographs, tiny

import wessl
from wessl.cli import main
from wessl.data.sources.open import open_source
from wessl.errors import UserError

DIGITS = "builtin://digits/test"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("embed")


@pytest.fixture(scope="module")
def run(home):
    return wessl.pretrain(DIGITS, home / "run", "dino-star-ent", **tiny())


def command(capsys, *words):
    """Exit code and what was printed, out and err."""
    with pytest.raises(SystemExit) as left:
        main(["embed", *map(str, words)])
    return left.value.code, *capsys.readouterr()


def test_the_command_writes_one_row_a_picture_and_says_so(run, tmp_path, capsys):
    out = tmp_path / "x.npz"
    words = ["-o", out, "--neighbours", 2, "--duplicates", "--device", "cpu"]
    code, printed, _ = command(capsys, run.path, DIGITS, *words)
    assert code == 0
    width = wessl.load(run.path).dim
    assert f"500 pictures, {width} numbers each: {out}" in printed
    assert "near to this encoder, which may see no difference where there is one" in printed
    with np.load(out) as kept:
        features, paths, index = kept["features"], kept["paths"], kept["neighbours"]
        similarity = kept["similarities"]
    assert paths[3] == "builtin://digits/test[3]"
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -2)
    np.testing.assert_allclose(similarity, -np.sort(-cosine, axis=1)[:, :2], atol=1e-5)
    np.testing.assert_allclose(np.take_along_axis(cosine, index, 1), similarity, atol=1e-5)
    listed = (tmp_path / "x.npz.duplicates.csv").read_text().splitlines()
    assert listed[0] == "group,path,other,similarity"
    surely, perhaps = ((np.triu(cosine, 1) >= end).sum() for end in (0.99, 0.99 - 2e-6))
    assert 0 < surely <= len(listed) - 1 <= perhaps
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npz", "x.npz.duplicates.csv"]
    before = out.read_bytes()
    code, _, err = command(capsys, run.path, DIGITS, "-o", out, "--device", "cpu")
    assert (code, out.read_bytes()) == (2, before)
    assert f"{out} exists; name another file, or replace it with --overwrite" in err
    words = [run.path, DIGITS, "-o", out, "--device", "cpu", "--overwrite"]
    assert command(capsys, *words)[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz"]


def test_pictures_may_be_shown_at_another_size(run, tmp_path):
    files = [tmp_path / name for name in ("own.npz", "larger.npz")]
    for file, image_size in zip(files, (None, 24), strict=True):
        wessl.embed(run, DIGITS, file, image_size=image_size, device="cpu")
    own, larger = (np.load(file)["features"] for file in files)
    assert own.shape == larger.shape
    picture = open_source(DIGITS).read(0)
    first = wessl.load(run.path, image_size=24).embed([picture])[0]
    np.testing.assert_allclose(larger[0], first, atol=1e-5)
    assert not np.allclose(own, larger, atol=1e-2)


def test_unreadable_files_are_listed_and_no_longer_once_repaired(run, tmp_path, capsys):
    folder = photographs(tmp_path / "pictures", 8)
    (folder / "cat" / "0.png").write_bytes(b"no")
    out = tmp_path / "x.npy"
    _, printed, _ = command(capsys, run.path, folder, "-o", out, "--half")
    listed = tmp_path / "x.npy.skipped.txt"
    assert f"1 unreadable, listed in {listed} (cat/0.png: " in printed
    assert np.load(out).shape[0] == 7
    assert np.load(out).dtype == np.float16
    assert listed.read_text().startswith("cat/0.png\t")
    (folder / "cat" / "0.png").write_bytes((folder / "cat" / "2.png").read_bytes())
    _, printed, err = command(capsys, run.path, folder, "-o", out, "--overwrite")
    assert "8 pictures, " in printed
    assert err.count(f"{listed} is removed: it told of an earlier call's features") == 1
    assert not listed.exists()
    told = wessl.embed(run, folder, out, overwrite=True, device="cpu")
    assert (told.pictures, told.skipped, told.files[-1]) == (8, (), out)


def test_a_killed_embedding_goes_on_where_it_was(run, tmp_path):
    folder = photographs(tmp_path / "pictures", 480)
    whole = wessl.embed(run, folder, tmp_path / "whole.npz", part=8, device="cpu").path
    out = tmp_path / "killed.npz"
    call = f"wessl.embed({str(run.path)!r}, {str(folder)!r}, {str(out)!r}, part=8, device='cpu'"
    child = subprocess.Popen([sys.executable, "-c", f"import wessl; {call})"])
    third = tmp_path / "killed.npz.parts" / "part-000002.npz"
    while not third.exists():
        assert child.poll() is None
        time.sleep(0.001)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert not out.exists()
    done = subprocess.run(
        [sys.executable, "-c", f"import wessl; {call}, quiet=False)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    kept = int(done.stderr.split(" of 480 pictures were done before")[0].split()[-1])
    assert 24 <= kept < 480
    assert out.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.glob("*.npz*")) == ["killed.npz", "whole.npz"]


def test_two_embeddings_into_one_file_do_not_mix(run, tmp_path):
    import fcntl

    parts = tmp_path / "x.npz.parts"
    parts.mkdir()
    with (parts / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="is being written by another process"):
            wessl.embed(run, DIGITS, tmp_path / "x.npz", device="cpu")
    assert wessl.embed(run, DIGITS, tmp_path / "x.npz", device="cpu").pictures == 500


def test_a_full_disk_is_said_and_the_parts_are_kept(run, tmp_path):
    limit = "import resource, signal; resource.setrlimit(resource.RLIMIT_FSIZE, (30000, -1))"
    start = "from wessl.cli import main; import sys; main(sys.argv[1:])"
    words = ["embed", str(run.path), DIGITS, "-o", str(tmp_path / "x.npz"), "--device", "cpu"]
    done = subprocess.run(
        [sys.executable, "-c", f"{limit}; {start}", *words], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "File too large" in done.stderr
    assert "the same command goes on" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["x.npz.parts"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere", DIGITS, "-o", "x.npz"], "nowhere does not exist"),
        (["RUN", "nowhere", "-o", "x.npz"], "nowhere does not exist"),
        (["RUN", DIGITS, "-o", "x.txt"], "must end in .npz or .npy or .parquet"),
        (["RUN", DIGITS, "-o", "gone/x.npz"], "the folder gone does not exist"),
        (["RUN", DIGITS, "-o", "x.npz", "--duplicates", "1.5"], "a cosine above 0"),
        (["RUN", DIGITS, "-o", "x.npz", "--neighbours", "-1"], "--neighbours must be 0 or more"),
        (["RUN", DIGITS, "-o", "x.npz", "--device", "tpu"], "is not a device"),
    ],
)
def test_mistakes_are_named_and_leave_nothing(run, tmp_path, monkeypatch, capsys, words, said):
    monkeypatch.chdir(tmp_path)
    code, _, err = command(capsys, *(str(run.path) if word == "RUN" else word for word in words))
    assert code == 2
    assert said in err
    assert not list(tmp_path.iterdir())


def test_without_pyarrow_a_parquet_file_is_refused_in_words(run, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as where it is not installed
    with pytest.raises(UserError, match=r"needs pyarrow .* pip install 'wessl\[parquet\]'"):
        wessl.embed(run, DIGITS, tmp_path / "x.parquet")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["encoder.safetensors", "encoder.json"])
def test_a_damaged_encoder_is_told_and_nothing_is_written(run, tmp_path, capsys, name):
    shutil.copytree(run.path, tmp_path / "run")
    (tmp_path / "run" / name).write_bytes((run.path / name).read_bytes()[:40])
    code, _, err = command(capsys, tmp_path / "run", DIGITS, "-o", tmp_path / "x.npz")
    assert code == 2
    assert "its encoder is damaged" in err
    assert "run `wessl pretrain` on it again" in err
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(("channels", "said"), [(3, "their colour is not seen"), (1, None)])
def test_colour_pictures_for_an_encoder_of_grey_ones_are_told_of(
    run, tmp_path, capsys, channels, said
):
    pixels = np.random.default_rng(0).integers(0, 255, (6, 8, 8, channels), dtype=np.uint8)
    np.savez(tmp_path / "p.npz", images=pixels)
    code, _, err = command(
        capsys, run.path, tmp_path / "p.npz", "-o", tmp_path / "x.npz", "--device", "cpu"
    )
    assert code == 0
    assert ("colour" in err) == (said is not None)
    assert said is None or said in err


def test_grey_pictures_for_an_encoder_of_colour_are_told_of(tmp_path, capsys):
    torch.manual_seed(0)
    shape = dict(dim=64, depth=1, heads=1, patch_size=4, image_size=8)
    torch.save(wessl.ViT(**shape).state_dict(), tmp_path / "vit.pth")
    words = ["-o", tmp_path / "x.npz", "--device", "cpu"]
    code, _, err = command(capsys, tmp_path / "vit.pth", DIGITS, *words)
    assert code == 0
    assert "are grey and the encoder was trained on colour" in err


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("data", "out", "said"),
    [
        ("cells.npz", "cells.npz", "-o cells.npz is DATA itself"),
        ("cells.npz", "./pictures/../cells.npz", "is DATA itself"),
        ("link.npz", "cells.npz", "is DATA itself"),
        ("cells.npz", "link.npz", "is DATA itself"),
        ("hard.npz", "cells.npz", "is DATA itself"),
        ("file://HERE/cells.npz", "cells.npz", "is DATA itself"),
        ("x.npy.names.txt", "x.npy", "write over or remove x.npy.names.txt, which is DATA"),
        ("x.npz.skipped.txt", "x.npz", "write over or remove x.npz.skipped.txt, which is DATA"),
        ("y.npz.parts", "y.npz", "write over or remove y.npz.parts, which is DATA"),
        ("pictures", "y.npz", "y.npz.parts/0.png, which is a picture"),
        ("pictures", "picture.npz", "-o picture.npz is a picture"),
        ("list.txt", "odd.npy", "-o odd.npy is a picture"),
    ],
)
def test_what_is_read_is_never_written_over(run, tmp_path, monkeypatch, capsys, data, out, said):
    monkeypatch.chdir(tmp_path)
    folder = photographs(tmp_path / "pictures", 4)
    np.savez("cells.npz", images=np.zeros((4, 8, 8), np.uint8), labels=np.arange(4))
    os.symlink("cells.npz", "link.npz")
    os.link("cells.npz", "hard.npz")
    for name in ("x.npy.names.txt", "x.npz.skipped.txt", "list.txt"):
        (tmp_path / name).write_text("pictures/cat/0.png\nodd.npy\n")
    shutil.copy(folder / "cat" / "2.png", "odd.npy")  # a list names files of any ending
    os.symlink("pictures/dog/1.png", "picture.npz")
    os.mkdir("y.npz.parts")
    shutil.copy(folder / "cat" / "0.png", "y.npz.parts/0.png")
    os.symlink("../y.npz.parts/0.png", "pictures/linked.png")
    before = contents(tmp_path)
    words = [data.replace("HERE", str(tmp_path)), "-o", out, "--device", "cpu", "--overwrite"]
    code, _, err = command(capsys, run.path, *words)
    assert code == 2
    assert said in " ".join(err.split())
    assert contents(tmp_path) == before


def test_weights_are_never_written_over(run, tmp_path):
    torch.manual_seed(0)
    weights = tmp_path / "vit.npz"
    torch.save(
        wessl.ViT(dim=64, depth=1, heads=1, patch_size=4, image_size=8).state_dict(), weights
    )
    os.symlink(run.path / "encoder.safetensors", tmp_path / "linked.npz")
    before = contents(tmp_path)
    with pytest.raises(UserError, match="is RUN itself"):
        wessl.embed(weights, DIGITS, weights, overwrite=True, device="cpu")
    with pytest.raises(UserError, match="is the encoder's weights file itself"):
        wessl.embed(run, DIGITS, tmp_path / "linked.npz", overwrite=True, device="cpu")
    assert contents(tmp_path) == before


def test_what_only_looks_like_an_earlier_output_stays(run, tmp_path):
    data = tmp_path / "x.npz.neighbours.npz"  # which -o x.npy would have, not -o x.npz
    np.savez(data, images=np.zeros((4, 8, 8), np.uint8))
    wessl.embed(run, data, tmp_path / "x.npz", device="cpu")
    assert data.exists()
    with pytest.raises(UserError, match=r"remove .*x\.npy\.neighbours\.npz, which is DATA"):
        wessl.embed(run, data.rename(tmp_path / "x.npy.neighbours.npz"), tmp_path / "x.npy")


@pytest.mark.parametrize(
    ("flag", "kind", "left"),
    [
        (["--duplicates"], "npz", "duplicates.csv"),
        (["--duplicates"], "npy", "duplicates.csv"),
        (["--neighbours", "2"], "npy", "neighbours.npz"),
    ],
)
def test_an_earlier_output_is_written_over_and_what_lies_beside_it_is_said_to_go(
    run, tmp_path, capsys, flag, kind, left
):
    folder, out = photographs(tmp_path / "pictures", 4), tmp_path / "pictures" / f"x.{kind}"
    listed = tmp_path / "pictures" / f"x.{kind}.{left}"
    words = [run.path, folder, "-o", out, "--device", "cpu", "--overwrite"]
    assert "removed" not in command(capsys, *words, *flag)[2]
    assert listed.exists()
    code, _, err = command(capsys, *words)
    assert code == 0
    assert err.count(f"{listed} is removed: it told of an earlier call's features") == 1
    assert not listed.exists()
    assert "removed" not in command(capsys, *words)[2]
