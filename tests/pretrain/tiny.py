"""Small pictures, configs and trainers for the tests of training."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from wessl.config import Config, EncoderConfig, HeadsConfig, LossConfig, OptimConfig, Options
from wessl.data.cache.build import build_cache
from wessl.data.cache.cache import PictureCache
from wessl.data.loading.loader import Loader
from wessl.data.sources.open import open_source
from wessl.data.views.config import Views, dino_views, msn_views
from wessl.pretrain.parallel import ALONE, Team
from wessl.pretrain.trainer import Trainer
from wessl.settings import override

MEAN_STD = ([0.3], [0.35])

CONV = EncoderConfig(kind="conv", widths=(4, 8), image_size=8)
VIT = EncoderConfig(kind="vit", dim=16, depth=2, heads=2, patch_size=4, image_size=8, drop_path=0.3)


def build_pictures(folder: Path, count: int = 48, side: int = 10) -> PictureCache:
    """Random grey pictures, through the same npz and cache as a user's."""
    folder.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(0).integers(0, 256, (count, side, side), dtype=np.uint8)
    np.savez(folder / "pictures.npz", images=images)
    return open_pictures(folder)


def open_pictures(folder: Path) -> PictureCache:
    return build_cache(open_source(folder / "pictures.npz"), None, folder, workers=0)


def build_digits(folder: Path) -> PictureCache:
    return build_cache(open_source("builtin://digits/train"), None, folder, workers=0)


def small_views(local_count: int = 2) -> Views:
    return dino_views(8, 4, local_count)


def tiny_config(**changes: Any) -> Config:
    """DINO*-ent with two heads on a tiny convolutional encoder; ``changes`` as in ``override``."""
    base = Config(
        encoder=CONV,
        heads=HeadsConfig(count=2, hidden_dim=16, depth=2, embed_dim=8, codes=6),
        loss=LossConfig(weighting="ent", gamma_epochs=2, teacher_temperature_epochs=2),
        optim=OptimConfig(epochs=3, batch_size=12, lr=5e-3, warmup_epochs=0.5, momentum=0.9),
        views=small_views(),
        channels=1,
        precision="fp32",
    )
    return override(base, changes)


RECIPES: dict[str, dict[str, Any]] = {
    "dino-star": {"heads.count": 1},
    "dino-star-ent": {},
    "dino-star-prob": {"weighting": "prob"},
    "dino-star-unif": {"weighting": "unif"},
    "msn-star": {"encoder": VIT, "target": "none", "me_max": 4.0, "mask": 0.2, "heads.count": 1},
    "msn-star-ent": {"encoder": VIT, "target": "none", "me_max": 4.0, "mask": 0.2},
    "dino": {
        "encoder": VIT,
        "heads.count": 1,
        "code_length": "free",
        "target": "centering",
        "stepwise_temperature": True,
        "teacher_temperature_start": 0.04,
        "teacher_temperature": 0.07,
        "clip": 0.3,
        "clip_each": True,
        "freeze_codes_epochs": 1,
    },
    "msn": {
        "encoder": VIT,
        "heads.count": 1,
        "batch_norm": True,
        "follow_codebook": True,
        "decay_codes": False,
        "clip_codes": False,
        "schedule_stretch": 1.25,
        "me_max": 1.0,
        "mask": 0.25,
        "momentum_shape": "linear",
        "views": msn_views(8, 4, 2),
    },
}


def build_trainer(
    cache: PictureCache, config: Config, team: Team = ALONE, **options: Any
) -> Trainer:
    """Which saves itself at the end, unless ``save_every`` is less or None, the default."""
    loader = Loader(cache, config.optim.batch_size, config.seed, part=team.part)
    settings = Options(**{"device": "cpu", "save_every": 300.0, **options})
    return Trainer(config, settings, loader, MEAN_STD, team=team)


def advance(trainer: Trainer, steps: int) -> list[float]:
    """Takes steps as the loop does; returns the loss of each."""
    losses = []
    batches = trainer.loader.batches(trainer.step)
    for _ in range(steps):
        before = trainer.meter.sums[2].item()
        trainer.train_step(trainer.prepare(*next(batches)))
        losses.append(trainer.meter.sums[2].item() - before)
    batches.close()
    return losses


def clone(state: Any) -> Any:
    """A copy of a trainer's state that later steps do not change."""
    if isinstance(state, torch.Tensor):
        return state.clone()
    if isinstance(state, dict):
        return {key: clone(value) for key, value in state.items()}
    if isinstance(state, list):
        return [clone(value) for value in state]
    return state


def unequal(a: Any, b: Any, name: str = "state") -> list[str]:
    """Names of all leaves of two states that are not bit-for-bit equal; times do not count."""
    if isinstance(a, torch.Tensor):
        return [] if a.dtype == b.dtype and torch.equal(a, b) else [name]
    if isinstance(a, dict):
        if a.keys() != b.keys():
            return [f"{name}: {sorted(map(str, a.keys() ^ b.keys()))}"]
        keys = [key for key in a if key != "seconds"]
        return [found for key in keys for found in unequal(a[key], b[key], f"{name}.{key}")]
    if isinstance(a, list):
        pairs = enumerate(zip(a, b, strict=True))
        return [found for i, (x, y) in pairs for found in unequal(x, y, f"{name}.{i}")]
    return [] if a == b else [name]
