"""Two processes that share the pictures of one command find what one finds, and one speaks."""

import contextlib
import hashlib
import json
import os
import random
import shutil
import socket
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import wessl
from wessl.analyse.diversity import Diversity

TRAIN, TEST = "builtin://digits/train", "builtin://digits/test"
SMALL = {"heads.count": 3, "codes": 16, "hidden_dim": 32, "quiet": True, "device": "cpu"}
PROTOCOLS = ("2-shot", "k-NN", "linear")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    return wessl.pretrain(TEST, folder / "run", "dino-star-ent", epochs=1, **SMALL)


def free_port():
    """Below those the system gives away by itself: nobody else gets it before it is used."""
    while True:
        port = random.randrange(20_000, 30_000)
        with contextlib.suppress(OSError), socket.socket() as free:
            free.bind(("127.0.0.1", port))
            return str(port)


def in_two_processes(*words):
    """What each printed, out and err; both must end well."""
    meet = dict(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), WORLD_SIZE="2", OMP_NUM_THREADS="1"
    )
    team = [
        subprocess.Popen(
            [sys.executable, "-m", "wessl", *map(str, words), "--device", "cpu"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | meet | dict(RANK=rank, LOCAL_RANK=rank, COLUMNS="200"),
        )
        for rank in "01"
    ]
    said = [process.communicate() for process in team]
    return [process.returncode for process in team], said


def evaluation_of(path):
    (file,) = (path / "results").glob("evaluation-*.json")
    return json.loads(file.read_text())


def test_an_evaluation_is_the_same_and_told_once(trained, tmp_path):
    alone, shared = (shutil.copytree(trained.path, tmp_path / name / "run") for name in "ab")
    settings = dict(device="cpu", draws=3, linear_epochs=2)
    found = wessl.evaluate(alone, TRAIN, TEST, PROTOCOLS, **settings)
    words = ["--train", TRAIN, "--test", TEST, "--protocols", *PROTOCOLS, "--draws", "3"]
    codes, said = in_two_processes("evaluate", shared, *words, "--linear-epochs", "2")
    assert codes == [0, 0], said
    assert "raw pixels" in said[0][0]
    assert said[1] == ("", "")
    kept = evaluation_of(shared)
    for one, two in zip(found["rows"], kept["rows"], strict=True):
        for name, result in one["results"].items():
            other = two["results"][name]
            assert other["accuracy"] == pytest.approx(result["accuracy"], abs=1e-9)
            assert other["interval"] == pytest.approx(result["interval"], abs=1e-9)
    features = [sorted(p.name for p in (run / "features").iterdir()) for run in (alone, shared)]
    assert features[0] == features[1]
    for name in features[0]:
        ours, theirs = (run / "features" / name for run in (alone, shared))
        if name.startswith("result-"):  # with its day and command
            assert torch.equal(load_file(ours)["predicted"], load_file(theirs)["predicted"])
        else:
            assert ours.read_bytes() == theirs.read_bytes()
    codes, again = in_two_processes("evaluate", shared, *words, "--linear-epochs", "2")
    assert codes == [0, 0], again
    assert again[0][0] == said[0][0]
    assert "8 results are from" in again[0][1]
    assert again[1] == ("", "")
    computed = {p: p.read_bytes() for p in (shared / "features").glob("[0-9a-f]*.safetensors")}
    for path in computed:
        wrong = torch.zeros_like(load_file(path)["features"])
        checksum = hashlib.sha256(wrong.numpy().tobytes()).hexdigest()
        save_file({"features": wrong}, path, {"about": json.dumps({"sha256": checksum})})
    codes, anew = in_two_processes("evaluate", shared, *words, "--linear-epochs", "2", "--again")
    assert codes == [0, 0], anew
    assert anew[0][0] == said[0][0]
    assert all(path.read_bytes() == content for path, content in computed.items())


def test_heads_are_compared_alike_and_by_one(trained, tmp_path):
    alone, shared = (shutil.copytree(trained.path, tmp_path / name / "run") for name in "ab")
    found = wessl.diversity(alone, TEST, pictures=301, device="cpu")
    assert isinstance(found, Diversity)
    codes, said = in_two_processes("diversity", shared, TEST, "--pictures", "301")
    assert codes == [0, 0], said
    assert "3 heads of 16 codes, 301 pictures" in said[0][0]
    assert said[1] == ("", "")
    one, two = (
        json.loads((run / "results" / "diversity.json").read_text()) for run in (alone, shared)
    )
    for name in ("score", "scores", "mutual_information"):
        np.testing.assert_allclose(two[name], one[name], atol=2e-4)
    np.testing.assert_allclose(two["curves"]["after"], one["curves"]["after"], atol=2e-4)
    assert [p["codes"] for p in two["disagreed"]] == [p["codes"] for p in one["disagreed"]]
    assert two["gallery"] == one["gallery"]


def test_a_mistake_is_told_once(trained):
    words = ["--train", TRAIN, "--test", TEST, "--protocols", "900-shot", "--no-baselines"]
    codes, said = in_two_processes("evaluate", trained.path, *words)
    assert codes == [2, 2]
    assert ["fewer than 900" in err for _, err in said] == [True, False]
