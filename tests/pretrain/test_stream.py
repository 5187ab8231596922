"""Pictures that go bad while a run streams them: said, replaced, and in the end too many."""

import numpy as np
import pytest
from PIL import Image
from tiny import MEAN_STD, tiny_config

from wessl.config import Options
from wessl.data.loading.loader import Loader
from wessl.data.sources.open import open_source
from wessl.errors import Failure
from wessl.pretrain.loop import train
from wessl.pretrain.trainer import Trainer
from wessl.run import Run

N, BATCH = 48, 12


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "pictures"
    place.mkdir()
    rng = np.random.default_rng(0)
    for i in range(N):
        pixels = rng.integers(0, 256, (10, 10), dtype=np.uint8)
        Image.fromarray(pixels).save(place / f"{i:02d}.png")
    return place


def trainer_on(folder, max_bad):
    config = tiny_config(epochs=4, batch_size=BATCH)
    loader = Loader(open_source(folder), BATCH, config.seed, max_bad=max_bad)
    return Trainer(config, Options(device="cpu", log_every=1), loader, MEAN_STD)


def train_and_break(folder, run, max_bad):
    """Five pictures break after the second step; returns all that was said of pictures gone bad."""
    said = []

    def report(row):
        said.append(row.get("message"))
        if row.get("step") == 2 and "message" not in row:
            for i in range(0, 40, 8):
                (folder / f"{i:02d}.png").write_bytes(b"broken")

    train(trainer_on(folder, max_bad), run, report)
    return [words for words in said if words and "unreadable" in words]


def test_a_picture_that_goes_bad_is_said_once_logged_and_replaced(folder, tmp_path):
    run = Run.create(tmp_path / "run", {})
    said = train_and_break(folder, run, max_bad=5)
    assert all("unreadable so far, the next ones taken instead" in words for words in said)
    assert said[-1].startswith("5 unreadable so far")
    log = (run.path / "train.log").read_text()
    assert [log.count(f"skipped {i:02d}.png: ") for i in range(0, 40, 8)] == [1] * 5
    assert run.load_checkpoint()["step"] == 16


def test_too_many_of_them_end_the_run_after_saving_it(folder, tmp_path):
    run = Run.create(tmp_path / "run", {})
    whole = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(Failure, match=r"3 of 48 pictures cannot be decoded, more than --max-bad 2"):
        train_and_break(folder, run, max_bad=2)
    state = run.load_checkpoint()
    assert 2 <= state["step"] < 16

    for path, data in whole.items():
        path.write_bytes(data)
    again = trainer_on(folder, max_bad=2)
    again.load_state(state)
    train(again, run, lambda row: None)
    assert (run.path / "encoder.safetensors").exists()
