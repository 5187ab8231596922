"""Hugging Face: a folder that ``AutoModel.from_pretrained`` loads as transformers' ``ViTModel``."""

import re
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from wessl.encoder.vit import ViT
from wessl.export.source import Source
from wessl.export.told import Told
from wessl.files import write_json, write_whole

_NAMES = (
    (r"^patch_embed\.proj\.", "embeddings.patch_embeddings.projection."),
    (r"^pos_embed$", "embeddings.position_embeddings"),
    (r"^cls_token$", "embeddings.cls_token"),
    (r"^norm\.", "layernorm."),
    (r"^blocks\.", "encoder.layer."),
    (r"\.norm1\.", ".layernorm_before."),
    (r"\.norm2\.", ".layernorm_after."),
    (r"\.attn\.(query|key|value)\.", r".attention.attention.\1."),
    (r"\.attn\.proj\.", ".attention.output.dense."),
    (r"\.mlp\.fc1\.", ".intermediate.dense."),
    (r"\.mlp\.fc2\.", ".output.dense."),
)


def write_hf(source: Source, folder: Path) -> Told:
    vit = source.vit("hf")
    tensors = hf_names(source.weights) | _pooler(vit.dim)
    file = folder / "model.safetensors"
    write_whole(file, lambda path: save_file(tensors, path, {"format": "pt"}))
    write_json(folder / "config.json", _config(source, vit))
    write_json(folder / "preprocessor_config.json", _processor(source))

    def load(place: str) -> str:
        return (
            "from transformers import AutoImageProcessor, AutoModel\n"
            f"processor = AutoImageProcessor.from_pretrained({place!r})\n"
            f"model = AutoModel.from_pretrained({place!r})\n"
            'features = model(**processor(picture, return_tensors="pt")).last_hidden_state[:, 0]'
        )

    side = source.positions_for
    facts = [
        "`last_hidden_state[:, 0]` is `[CLS]` after the final norm, the rest are the patches.",
        "The pooler is the identity, so `pooler_output` is `[CLS]` too; a transformers too old to "
        "know `pooler_act` puts a tanh on it.",
        f"Positions are for pictures of {side} x {side}; for others call the model with "
        "`interpolate_pos_encoding=True`, which computes what wessl does.",
        "The processor rounds resized pictures to whole levels, and its centre crop may lie one "
        "pixel beside wessl's: its features are very close to wessl's of the same file, not equal.",
    ]
    if source.described["channels"] != 3:
        facts.append(
            f"The processor leaves the {source.described['channels']} channels of a picture as "
            "they are: give it pictures with that many."
        )
    return Told("transformers", load, facts)


def hf_names(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Hugging Face's names; what timm keeps in one matrix is query, key and value apart there.

    >>> sorted(hf_names({"blocks.0.attn.qkv.bias": torch.zeros(6)}))[0]
    'encoder.layer.0.attention.attention.key.bias'
    """
    named: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if ".attn.qkv." in name:
            for part, third in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                named[_renamed(name.replace("qkv", part))] = third.clone()
        else:
            named[_renamed(name)] = tensor
    return named


def _renamed(name: str) -> str:
    for pattern, new in _NAMES:
        name = re.sub(pattern, new, name)
    return name


def _pooler(dim: int) -> dict[str, Tensor]:
    """Without one in the file, transformers makes up a random one."""
    return {"pooler.dense.weight": torch.eye(dim), "pooler.dense.bias": torch.zeros(dim)}


def _config(source: Source, vit: ViT) -> dict[str, Any]:
    return dict(
        architectures=["ViTModel"],
        model_type="vit",
        hidden_size=vit.dim,
        num_hidden_layers=vit.depth,
        num_attention_heads=vit.heads,
        intermediate_size=4 * vit.dim,
        hidden_act="gelu",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        layer_norm_eps=1e-6,
        image_size=source.positions_for,
        patch_size=vit.patch_size,
        num_channels=vit.in_channels,
        qkv_bias=True,
        pooler_act="linear",
        pooler_output_size=vit.dim,
        torch_dtype="float32",
    )


def _processor(source: Source) -> dict[str, Any]:
    """BiT's processor: ViT's own squashes pictures to a square instead of cropping them."""
    said = source.described
    return dict(
        image_processor_type="BitImageProcessor",
        do_convert_rgb=said["channels"] == 3,
        do_resize=True,
        size=dict(shortest_edge=said["resize"]),
        resample=3,  # PIL's number of bicubic
        do_center_crop=True,
        crop_size=dict(height=said["image_size"], width=said["image_size"]),
        do_rescale=True,
        rescale_factor=1 / 255,
        do_normalize=True,
        image_mean=said["mean"],
        image_std=said["std"],
    )
