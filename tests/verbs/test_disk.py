"""What a run keeps on the disk is said before it starts, and about right."""

import pytest
from small_runs import tiny

import wessl
from wessl.config import Config
from wessl.recipes import recipe
from wessl.settings import from_dict
from wessl.verbs.pretraining.disk import checkpoint_bytes


def test_the_papers_small_recipe_keeps_four_numbers_for_each_of_its_53_million_weights():
    assert checkpoint_bytes(recipe("dino-star-ent/vits16")) == pytest.approx(
        4 * 4 * 53.2e6, rel=0.005
    )


def test_the_announced_size_is_that_of_the_file_and_too_little_room_is_warned_of(tmp_path):
    settings = tiny(keep=10**9, hidden_dim=256, **{"encoder.dim": 96, "encoder.heads": 4})
    run = wessl.pretrain("builtin://digits/test", tmp_path / "run", "dino-star-ent", **settings)
    said = (run.path / "train.log").read_text()
    config = from_dict(Config, run.read_config()["config"])
    path = max(run.checkpoints.glob("step-*.pt"))
    assert path.stat().st_size == pytest.approx(checkpoint_bytes(config), rel=0.15)
    assert "disk: the run keeps 1000000000 checkpoints of about" in said
    assert "warning: that is too little for 1000000000 and the one being written" in said
    assert "fewer to --keep" in said
