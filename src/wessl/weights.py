"""Files of encoder weights that others wrote: what is in them, and what they do not say."""

import argparse
import json
import math
import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from wessl.config import EncoderConfig
from wessl.encoder.convert import Converted, Network, UnknownHeads, convert
from wessl.errors import UserError
from wessl.settings import to_dict


def read_foreign(
    loaded: dict[str, Any], path: Path, network: Network = "teacher", heads: int | None = None
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A ViT's weights under our names, and what its ``encoder.json`` would say."""
    told = _json_beside(path, "config.json")
    args = told.get("model_args")  # where timm tells of a model with other heads than its name's
    number = told.get("num_attention_heads") or (isinstance(args, dict) and args.get("num_heads"))
    try:
        found = convert(loaded, network, heads or number or None)
    except UnknownHeads as error:
        raise UserError(
            f"{path}: {error}; write it into a config.json beside the file, such as "
            '{"num_attention_heads": 6}, or give --encoder.heads to `wessl pretrain --init`'
        ) from error
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
    return found.state, describe_vit(found, path)


def say_of(about: dict[str, Any], name: str) -> list[str]:
    """What is not used of a file, by reason, and what was changed or assumed, a line each."""
    reasons: dict[str, list[str]] = {}
    for what, why in about.get("left_out", {}).items():
        reasons.setdefault(why, []).append(what)
    lines = []
    for why, names in reasons.items():
        some = ", ".join(names[:3]) + f" and {len(names) - 3} more" * (len(names) > 3)
        lines.append(f"{name}: not used: {some} ({why})")
    lines += [f"{name}: {note}" for note in about.get("notes", ())]
    size, positions = about.get("image_size"), about.get("positions")
    if positions not in (None, size):
        lines.append(f"{name}: pictures are {size} wide, positions for {positions} interpolated")
    return lines


def read_tensors(path: Path) -> dict[str, Any]:
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        # DINO's checkpoints carry the arguments of their training, a plain bag of values.
        with torch.serialization.safe_globals([argparse.Namespace]):
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise UserError(
            f"{path} cannot be read as weights: it is damaged, or holds objects that only running "
            f"their code could restore; torch.save its state dict alone ({_first_line(error)})"
        ) from error
    except Exception as error:
        raise UserError(f"{path} cannot be read as weights: {_first_line(error)}") from error
    if not isinstance(loaded, dict):
        raise UserError(f"{path} holds a {type(loaded).__name__}, not tensors by name")
    return loaded


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def describe_vit(found: Converted, path: Path) -> dict[str, Any]:
    """What ``encoder.json`` would say of converted weights; normalisation as files beside tell."""
    config = EncoderConfig(
        patch_size=found.patch_size,
        image_size=found.image_size,
        dim=found.dim,
        depth=found.depth,
        heads=found.heads,
        drop_path=0.0,
    )
    notes = list(found.notes)
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    if found.channels != 3:
        mean, std = [0.5] * found.channels, [0.25] * found.channels
    processor = _json_beside(path, "preprocessor_config.json")
    told = _json_beside(path, "config.json").get("pretrained_cfg") or {
        name: processor.get(f"image_{name}") for name in ("mean", "std")
    }
    if all(len(told.get(name) or ()) == found.channels for name in ("mean", "std")):
        mean, std = [float(x) for x in told["mean"]], [float(x) for x in told["std"]]
        notes.append(f"normalisation as the files beside it say: mean {mean}, std {std}")
    else:
        notes.append(f"normalisation is assumed: mean {mean}, std {std}")
    # DINOv2's positions are made for 518, its published figures for 224.
    size = 224 if (found.patch_size, found.image_size) == (14, 518) else found.image_size
    return dict(
        encoder=to_dict(config),
        channels=found.channels,
        mean=mean,
        std=std,
        image_size=size,
        positions=found.image_size,
        resize=_resize(processor, told, size) or round(size * 256 / 224),
        left_out=found.left_out,
        notes=notes,
    )


def _resize(processor: dict[str, Any], timm: dict[str, Any], size: int) -> int | None:
    """The short side before the centre crop of this size, where files beside the weights say it."""
    try:
        if processor and int(processor["crop_size"]["height"]) == size:
            return max(size, int(processor["size"]["shortest_edge"]))
        return max(size, math.floor(size / timm["crop_pct"]))
    except (LookupError, TypeError, ValueError, ZeroDivisionError):
        return None


def _json_beside(path: Path, name: str) -> dict[str, Any]:
    """What a model hub keeps beside weights; absent or unreadable, it tells nothing."""
    try:
        value = json.loads(path.with_name(name).read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
