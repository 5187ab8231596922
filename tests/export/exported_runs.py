"""Run folders with small encoders whose features differ from picture to picture."""

from pathlib import Path
from typing import Any

import torch

from wessl.config import Config, EncoderConfig
from wessl.run import Run, build_encoder
from wessl.settings import to_dict

MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
TINY: dict[str, Any] = dict(dim=48, depth=2, heads=4, patch_size=8, image_size=32)
CONV: dict[str, Any] = dict(kind="conv", widths=(8, 16, 24), image_size=16)


def run_folder(
    path: Path, encoder: dict[str, Any] | None = None, channels: int = 3, resize: int | None = None
) -> Run:
    """A finished run as `pretrain` leaves it, with random weights far from their quiet start."""
    config = EncoderConfig(**(TINY if encoder is None else encoder))
    torch.manual_seed(0)
    built = build_encoder(config, channels)
    with torch.no_grad():
        for tensor in built.parameters():
            wide = tensor[0].numel() if tensor.dim() in (2, 4) else 10
            tensor.copy_(torch.randn_like(tensor) / wide**0.5 + (tensor.dim() == 1) * tensor)
    mean, std = (MEAN, STD) if channels == 3 else ([0.3] * channels, [0.2] * channels)
    data = dict(location="/home/ann/holiday_[2024]", pictures=1234, skipped=2)
    header = dict(
        config=to_dict(Config(recipe="dino-star-ent/auto", encoder=config, channels=channels)),
        data=data, device="cpu", versions=dict(wessl="0.1", torch="2.13"),
    )  # fmt: skip
    run = Run.create(path, header)
    side = config.image_size
    described = dict(
        format=1, encoder=to_dict(config) | dict(drop_path=0.0), channels=channels, mean=mean,
        std=std, image_size=side, resize=resize or side, recipe="dino-star-ent/auto",
        network="teacher",
    )  # fmt: skip
    run.save_encoder(built.state_dict(), described)
    return run
