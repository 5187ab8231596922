"""Encoders by their description, ``encoder.json``: made, described, and read from any file."""

import json
from pathlib import Path

from torch import Tensor, nn

from wessl.config import Config, EncoderConfig
from wessl.encoder.conv import ConvNet
from wessl.encoder.convert import Network
from wessl.encoder.vit import ViT
from wessl.errors import UserError
from wessl.run.folder import Run, State
from wessl.settings import from_dict, to_dict
from wessl.weights import read_foreign, read_tensors


def build_encoder(config: EncoderConfig, channels: int) -> nn.Module:
    """The encoder an ``encoder.json`` or a config describes, at its random start."""
    if config.kind == "conv":
        return ConvNet(config.widths, channels)
    return ViT(
        config.size,
        config.patch_size,
        config.image_size,
        channels,
        config.drop_path,
        config.dim,
        config.depth,
        config.heads,
    )


def read_weights(
    path: Path, network: Network = "teacher", heads: int | None = None
) -> tuple[dict[str, Tensor], State]:
    """Encoder weights from a file, and what they are, as in an ``encoder.json``.

    Ours (``encoder.safetensors``, or a checkpoint of a run), or a ViT with the names of DINO, MSN,
    DINOv2, timm or Hugging Face. The description's ``left_out`` names every tensor of the file that
    is not used, with the reason; its ``notes`` say what was changed or assumed.
    """
    if not path.exists():
        raise UserError(f"{path} does not exist; give a run folder or a .safetensors/.pth file")
    loaded = read_tensors(path)
    beside = path.with_name("encoder.json")
    if path.name == "encoder.safetensors" and beside.exists():
        description = json.loads(beside.read_text())
        if description.get("network", network) != network:
            raise UserError(f"{path} is no {network}; give a file of {path.parent}/checkpoints")
        return loaded, description | dict(left_out={}, notes=[])
    run = Run(path.parents[1]) if path.parent.name == "checkpoints" else None
    if run is not None and run.exists:
        return _of_checkpoint(loaded, run, network)
    return read_foreign(loaded, path, network, heads)


def _of_checkpoint(
    checkpoint: State, run: Run, network: Network
) -> tuple[dict[str, Tensor], State]:
    """The encoder of a run's checkpoint; the run says what it is, finished or not."""
    if network not in checkpoint:
        raise UserError(f"{run.checkpoints} has a file without a {network}; give a step-*.pt")
    header = run.read_config()
    config = from_dict(Config, header["config"])
    weights = {
        name.removeprefix("encoder."): tensor
        for name, tensor in checkpoint[network].items()
        if name.startswith("encoder.")
    }
    description = describe_encoder(config, **header["normalisation"]) | dict(
        network=network,
        left_out={f"{network}.heads": "projection heads and codebooks"}
        | {name: "another network" for name in ("student", "teacher") if name != network}
        | {"optimizer": "training state"},
        notes=[f"step {checkpoint['step']}"],
    )
    return weights, description


def describe_encoder(config: Config, mean: list[float], std: list[float]) -> State:
    """``encoder.json`` of a run: what someone needs to use its weights."""
    size = config.views.crops[0].size
    photographs = config.views.crops[0].inside and size >= 64
    return dict(
        format=1,
        encoder=to_dict(config.encoder) | {"drop_path": 0.0},
        channels=config.channels,
        mean=mean,
        std=std,
        image_size=size,
        resize=round(size * 256 / 224) if photographs else size,
        recipe=config.recipe,
        network="teacher",
    )
