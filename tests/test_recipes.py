"""The named recipes against the paper's tables, written out here independently."""

import json
import subprocess
import sys

import pytest

from wessl import auto, recipes
from wessl.config import Config
from wessl.errors import UserError
from wessl.settings import from_dict, to_dict

# What no table varies. Where the paper is silent (short side, seed, unused fields), our own.
COMMON = {
    "encoder.kind": "vit",
    "encoder.image_size": 224,
    "encoder.dim": None,
    "encoder.depth": None,
    "encoder.heads": None,
    "encoder.start": "random",
    "encoder.widths": [24, 48, 96],
    "heads.depth": 3,
    "heads.embed_dim": 256,
    "heads.share": None,
    "loss.student_temperature": 0.1,
    "loss.center_momentum": 0.9,
    "loss.gamma_start": 0.5,
    "loss.gamma_epochs": 30,
    "optim.batch_size": 1024,
    "optim.weight_decay": 0.04,
    "optim.weight_decay_end": 0.4,
    "optim.momentum": 0.996,
    "optim.momentum_end": 1.0,
    "optim.accumulate": 1,
    "short_side": 256,
    "channels": 3,
    "seed": 0,
    "precision": "bf16",
}

# The appendix's set-up shared by DINO* and MSN*.
STAR = COMMON | {
    "encoder.drop_path": 0.1,
    "heads.hidden_dim": 1024,
    "heads.batch_norm": False,
    "heads.code_length": "one",
    "heads.follow_codebook": False,
    "loss.teacher_temperature": 0.025,
    "loss.teacher_temperature_start": 0.05,
    "loss.teacher_temperature_epochs": 30,
    "loss.stepwise_temperature": False,
    "optim.lr": 2e-3,
    "optim.lr_start": 0.0,
    "optim.decay_codes": True,
    "optim.clip_each": False,
    "optim.clip_codes": True,
    "optim.schedule_stretch": 1.0,
    "optim.momentum_shape": "cosine",
    "optim.freeze_codes_epochs": 0,
}

# "Hyper-parameters for training the DINO* model", column by column; the last four are ours,
# made of the base's column of their size.
DINO_STAR_COLUMNS = [
    "dino-star/vits16", "dino-star-prob/vits16", "dino-star-ent/vits16",
    "dino-star/vitb16", "dino-star-ent/vitb16", "dino-star/vitb8", "dino-star-ent/vitb8",
    "dino-star-unif/vits16", "dino-star-unif/vitb16", "dino-star-unif/vitb8",
    "dino-star-prob/vitb16", "dino-star-prob/vitb8",
]  # fmt: skip
DINO_STAR = {
    "encoder.size":        ["S", "S", "S", "B", "B", "B", "B", "S", "B", "B", "B", "B"],
    "encoder.patch_size":  [16, 16, 16, 16, 16, 8, 8, 16, 16, 8, 16, 8],
    "optim.epochs":        [800, 800, 800, 400, 400, 300, 300, 800, 400, 300, 400, 300],
    "optim.warmup_epochs": [10, 10, 10, 30, 30, 10, 10, 10, 30, 10, 30, 10],
    "optim.min_lr": [1e-5, 1e-5, 1e-5, 1e-5, 1e-5, 4e-5, 4e-5, 1e-5, 1e-5, 4e-5, 1e-5, 4e-5],
    "optim.clip":   [3.0, 3.0, 3.0, 1.0, 1.0, 3.0, 3.0, 3.0, 1.0, 3.0, 1.0, 3.0],
    "heads.codes":  [4096, 1024, 1024, 4096, 1024, 4096, 1024, 1024, 1024, 1024, 1024, 1024],
    "heads.count":  [1, 16, 16, 1, 16, 1, 16, 16, 16, 16, 16, 16],
    "loss.weighting": ["unif", "prob", "ent", "unif", "ent", "unif", "ent",
                       "unif", "unif", "unif", "prob", "prob"],
    "loss.gamma":   [None, 1.0, 0.05, None, 0.05, None, 0.06, None, None, None, 1.0, 1.0],
    "loss.target":  ["sinkhorn"] * 12,
    "loss.me_max":  [0.0] * 12,
    "loss.me_max_heads": ["weighted"] * 12,
    "loss.mask":    [0.0] * 12,
}  # fmt: skip

# "Hyper-parameters for training the MSN* model".
MSN_STAR_COLUMNS = [
    "msn-star/vits16", "msn-star-ent/vits16", "msn-star/vitb16", "msn-star-ent/vitb16",
    "msn-star/vitb8", "msn-star-ent/vitb8",
]  # fmt: skip
MSN_STAR = {
    "encoder.size":        ["S", "S", "B", "B", "B", "B"],
    "encoder.patch_size":  [16, 16, 16, 16, 8, 8],
    "optim.epochs":        [800, 800, 400, 400, 300, 300],
    "optim.warmup_epochs": [20, 20, 30, 30, 20, 20],
    "optim.min_lr":        [1e-5, 1e-5, 4e-5, 4e-5, 4e-5, 4e-5],
    "optim.clip":          [1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
    "heads.codes":         [4096, 1024, 4096, 1024, 4096, 1024],
    "heads.count":         [1, 8, 1, 8, 1, 8],
    "loss.weighting":      ["unif", "ent", "unif", "ent", "unif", "ent"],
    "loss.gamma":          [None, 0.01, None, 0.005, None, 0.01],
    "loss.target":         ["none"] * 6,
    "loss.me_max":         [4.0] * 6,
    "loss.me_max_heads":   ["weighted"] * 6,
    "loss.mask":           [0.2, 0.2, 0.2, 0.2, 0.15, 0.15],
}  # fmt: skip

# The originals, from their own public configurations.
ORIGINAL_COLUMNS = ["dino/vits16", "dino/vitb16", "dino/vitb8", "msn/vits16", "msn/vitb16",
                    "msn/vitb8"]  # fmt: skip
ORIGINAL = {
    "encoder.size":          ["S", "B", "B", "S", "B", "B"],
    "encoder.patch_size":    [16, 16, 8, 16, 16, 8],
    "encoder.drop_path":     [0.1, 0.1, 0.1, 0.0, 0.0, 0.0],
    "heads.count":           [1] * 6,
    "heads.hidden_dim":      [2048] * 6,
    "heads.codes":           [65536, 65536, 65536, 1024, 1024, 1024],
    "heads.batch_norm":      [False, False, False, True, True, True],
    "heads.code_length":     ["free", "fixed", "fixed", "one", "one", "one"],
    "heads.follow_codebook": [False, False, False, True, True, True],
    "loss.weighting":        ["unif"] * 6,
    "loss.gamma":            [None] * 6,
    "loss.target":           ["centering"] * 3 + ["sinkhorn"] * 3,
    "loss.teacher_temperature_start":  [0.04, 0.04, 0.03, 0.025, 0.025, 0.025],
    "loss.teacher_temperature":        [0.07, 0.07, 0.07, 0.025, 0.025, 0.025],
    "loss.teacher_temperature_epochs": [30, 50, 50, 0, 0, 0],
    "loss.stepwise_temperature":       [True, True, True, False, False, False],
    "loss.me_max":           [0.0, 0.0, 0.0, 1.0, 1.0, 1.0],
    "loss.me_max_heads":     ["weighted"] * 6,
    "loss.mask":             [0.0, 0.0, 0.0, 0.15, 0.15, 0.15],
    "optim.epochs":          [800, 400, 300, 800, 600, 600],
    "optim.lr":              [2e-3, 3e-3, 2e-3, 1e-3, 1e-3, 1e-3],
    "optim.lr_start":        [0.0, 0.0, 0.0, 2e-4, 2e-4, 2e-4],
    "optim.min_lr":          [1e-5, 2e-6, 2e-6, 1e-6, 1e-6, 1e-6],
    "optim.warmup_epochs":   [10, 10, 10, 15, 15, 15],
    "optim.decay_codes":     [True, True, True, False, False, False],
    "optim.clip":            [None, 0.3, 3.0, 3.0, 3.0, 3.0],
    "optim.clip_each":       [True, True, True, False, False, False],
    "optim.clip_codes":      [True, True, True, False, False, False],
    "optim.schedule_stretch": [1.0, 1.0, 1.0, 1.25, 1.25, 1.25],
    "optim.momentum_shape":  ["cosine"] * 3 + ["linear"] * 3,
    "optim.freeze_codes_epochs": [1, 3, 3, 0, 0, 0],
}  # fmt: skip


def crop(size, count, area, role, blur, solarise=0.0, saturation=0.2, interpolation="bicubic"):
    photometric = dict(
        jitter=0.8, brightness=0.4, contrast=0.4, saturation=saturation, hue=0.1, grey=0.2,
        blur=blur, blur_sigma=[0.1, 2.0], solarise=solarise,
    )  # fmt: skip
    return dict(
        size=size, count=count, area=area, aspect=[3 / 4, 4 / 3], flip=0.5,
        interpolation=interpolation, rotation=0.0, shear=0.0, outside="edge", role=role,
        photometric=photometric,
    )  # fmt: skip


def views_of(name):
    if name.startswith("msn/"):
        like = dict(blur=0.5, saturation=0.4, interpolation="bilinear")
        return [
            crop(224, 1, [0.3, 1.0], "target", **like),
            crop(224, 1, [0.3, 1.0], "local", **like),
            crop(96, 10, [0.05, 0.3], "local", **like),
        ]
    return [
        crop(224, 1, [0.25, 1.0], "global", blur=1.0),
        crop(224, 1, [0.25, 1.0], "global", blur=0.1, solarise=0.2),
        crop(96, 10, [0.05 if name.startswith("dino/") else 0.08, 0.25], "local", blur=0.5),
    ]


def expected():
    tables = [
        (STAR, DINO_STAR_COLUMNS, DINO_STAR),
        (STAR, MSN_STAR_COLUMNS, MSN_STAR),
        (COMMON, ORIGINAL_COLUMNS, ORIGINAL),
    ]
    for shared, columns, table in tables:
        for i, name in enumerate(columns):
            fields = shared | {field: row[i] for field, row in table.items()}
            yield name, fields | {"recipe": name, "views.crops": views_of(name)}


EXPECTED = dict(expected())


def flat(config):
    """``{"optim.lr": 0.002, ...}`` as JSON would have it."""
    tree = json.loads(json.dumps(to_dict(config)))
    leaves = {k: v for k, v in tree.items() if not isinstance(v, dict)}
    for part in tree.keys() - leaves:
        leaves |= {f"{part}.{name}": value for name, value in tree[part].items()}
    return leaves


def test_the_tables_cover_every_named_recipe():
    assert sorted(EXPECTED) == sorted(recipes.names())
    assert len(recipes.names()) == 24


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_every_field_is_the_papers(name):
    assert flat(recipes.recipe(name)) == EXPECTED[name]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_recipe_survives_json(name):
    config = recipes.recipe(name)
    assert from_dict(Config, json.loads(json.dumps(to_dict(config)))) == config


@pytest.mark.parametrize("family", sorted(recipes.FAMILIES))
def test_a_recipe_states_command_time_and_whose_score(family):
    words = recipes.FAMILIES[family].__doc__
    command = f"wessl pretrain /path/to/imagenet/train --out runs/x --recipe {family}/vits16"
    for part in (command, "Time:", "measured", "Score, the paper's", "vitb16", "vitb8"):
        assert part in words


SCORES = {  # ImageNet 1-shot / 1 % / k-NN / linear, from the paper's main table
    "dino": ["39.1 / 64.7 / 74.3 / 75.8 and 76.9", "43.0 / 67.4 / 76.1 / 78.2",
             "47.5 / 70.3 / 77.4 / 80.1"],
    "dino-star": ["44.6 / 66.2 / 74.1 / 75.8 and 76.9", "49.3 / 69.1 / 76.0 / 78.5",
                  "49.5 / 70.7 / 77.1 / 80.2"],
    "dino-star-ent": ["47.6 / 68.3 / 75.3 / 76.8 and 77.7", "52.8 / 71.1 / 77.1 / 79.1",
                      "55.0 / 73.4 / 78.6 / 81.0", "46.3 / 67.5 / 74.8 / 76.2 and 77.2"],
    "dino-star-prob": ["45.2 / 67.3 / 75.1 / 76.5 and 77.6"],
    "dino-star-unif": ["40.4 / 63.3 / 72.2 / 74.5", "40.6 / 63.4 / 72.3 / 74.4"],
    "msn": ["39.1 / 64.3 / 72.8 / 74.7 and 75.5", "47.1 / 67.2 / - / - and 76.9"],
    "msn-star": ["47.4 / 67.1 / 73.3 / 75.6 and 76.6", "50.7 / 69.7 / 74.7 / 78.1",
                 "51.9 / 71.7 / 75.7 / 80.3"],
    "msn-star-ent": ["50.1 / 68.7 / 75.2 / 76.4 and 77.4", "53.7 / 71.5 / 77.2 / 78.9",
                     "55.6 / 73.4 / 78.9 / 80.8", "48.8 / 67.9 / 74.6 / 76.0 and 76.9"],
}  # fmt: skip


@pytest.mark.parametrize("family", sorted(recipes.FAMILIES))
def test_the_scores_in_the_docstrings_are_the_papers(family):
    words = " ".join(recipes.FAMILIES[family].__doc__.split())
    for score in SCORES[family]:
        assert score in words


def test_a_family_alone_means_its_small_transformer():
    assert recipes.recipe("dino-star-ent") == recipes.recipe("dino-star-ent/vits16")


@pytest.mark.parametrize(
    ("wrong", "near"),
    [
        ("dino-star-ents/vits16", "dino-star-ent/vits16"),
        ("msn_star", "msn-star"),
        ("dino-star/vitb14", "dino-star/vitb16"),
    ],
)
def test_an_unknown_name_gets_the_nearest_one(wrong, near):
    with pytest.raises(UserError, match=f"did you mean '{near}'"):
        recipes.recipe(wrong)
    with pytest.raises(UserError, match="did you mean"):
        auto.small(wrong, auto.DataFacts(1000, 8, 8, 1, "cpu", 8 * 2**30))


def test_recipes_do_not_load_torch():
    code = "import sys, wessl.recipes, wessl.auto; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
