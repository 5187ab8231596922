"""timm: a safetensors file that ``timm.create_model(..., checkpoint_path=...)`` loads strictly."""

import math
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from wessl.encoder.sizes import SIZES
from wessl.encoder.vit import ViT
from wessl.export.source import Source
from wessl.export.told import Told, under
from wessl.files import write_json, write_whole

_WORDS = {"T": "tiny", "S": "small", "B": "base", "L": "large"}
_PATCHES = {"T": (16,), "S": (8, 16, 32), "B": (8, 16, 32), "L": (14, 16, 32)}
"""Patches for which timm has a model of 224 pixels; others are given as a keyword."""


def timm_model(vit: ViT, image_size: int) -> tuple[str, dict[str, int]]:
    """timm's model of the same tensors, and the keywords in which ours differs from it.

    >>> timm_model(ViT("S"), 224)
    ('vit_small_patch16_224', {})
    >>> timm_model(ViT("T", patch_size=8, image_size=96, in_channels=1), 96)
    ('vit_tiny_patch16_224', {'patch_size': 8, 'img_size': 96, 'in_chans': 1})
    >>> timm_model(ViT(dim=96, depth=4, heads=3), 224)
    ('vit_tiny_patch16_224', {'embed_dim': 96, 'depth': 4, 'num_heads': 3})
    """
    shape = (vit.dim, vit.depth, vit.heads)
    size = next((name for name, known in SIZES.items() if known == shape), None)
    letter = size or "T"
    patch = vit.patch_size if vit.patch_size in _PATCHES[letter] else 16
    own = {} if size else dict(embed_dim=vit.dim, depth=vit.depth, num_heads=vit.heads)
    rest = dict(
        patch_size=(vit.patch_size, patch),
        img_size=(image_size, 224),
        in_chans=(vit.in_channels, 3),
    )
    changed = {name: ours for name, (ours, theirs) in rest.items() if ours != theirs}
    return f"vit_{_WORDS[letter]}_patch{patch}_224", own | changed


def write_timm(source: Source, folder: Path) -> Told:
    vit = source.vit("timm")
    name, keywords = timm_model(vit, source.positions_for)
    file = f"{name}.safetensors"
    write_whole(folder / file, lambda path: save_file(source.weights, path, {"format": "pt"}))
    write_json(folder / "config.json", _config(source, name, keywords))
    given = "".join(f"{key}={value}, " for key, value in keywords.items())

    def load(place: str) -> str:
        path = under(place, file)
        return (
            "import timm\n"
            f'model = timm.create_model("{name}", {given}num_classes=0, checkpoint_path={path!r})\n'
            "features = model.eval()(images)        # [CLS]; forward_features gives every token"
        )

    facts = [
        f"timm's model is `{name}`{f' with {given[:-2]}' if given else ''}; every tensor has its "
        "name and shape there, so loading is strict.",
        "For a classifier call `model.reset_classifier(10)` after loading: these weights have none "
        "to load.",
        "`config.json` says the same to timm itself, from 1.0.16 on: "
        "`timm.create_model('local-dir:FOLDER', pretrained=True)`.",
        f"Positions are for pictures of {source.positions_for} x {source.positions_for}. With "
        "`dynamic_img_size=True` timm resizes them for others with antialiasing, wessl without: "
        "features of smaller pictures then differ.",
    ]
    return Told("timm", load, facts)


def _config(source: Source, name: str, keywords: dict[str, int]) -> dict[str, Any]:
    """What timm keeps beside weights on a hub, normalisation and centre crop included."""
    said = source.described
    size, resize = said["image_size"], said["resize"]
    share = size / resize
    if math.floor(size / share) != resize:  # timm rounds the other way round
        share = size / (resize + 0.5)
    return dict(
        architecture=name,
        num_classes=0,
        num_features=source.encoder.dim,
        global_pool="token",
        model_args=keywords,
        pretrained_cfg=dict(
            num_classes=0,
            input_size=[said["channels"], source.positions_for, source.positions_for],
            fixed_input_size=True,
            interpolation="bicubic",
            crop_pct=share,
            crop_mode="center",
            mean=said["mean"],
            std=said["std"],
            first_conv="patch_embed.proj",
            classifier="head",
        ),
    )
