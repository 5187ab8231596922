"""What an encoder sees: sample pictures with their nearest neighbours, and where a ViT looks.

``gallery`` returns what is kept as ``results/gallery.json``, which the report draws::

    {"format": 1, "kind": "gallery",
     "searched": pictures compared, "pictures": pictures there were, "similarity": in words,
     "same_label": share of all neighbours, of every picture searched, that have its label | None,
     "chance": that share if neighbours were drawn at random | None,
     "samples": [{"index", "label" | None, "thumbnail",
                  "neighbours": [{"index", "label" | None, "similarity", "thumbnail"}, ...]}, ...],
     "attention": None | {"block", "grid": [rows, columns],
                  "samples": [{"index", "label" | None, "thumbnail",
                               "mean", "heads": [...]}, ...]}}

``index`` counts the pictures of the cache; thumbnails and maps are data URIs of at most 64 pixels.
"""

import base64
import io
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from wessl.data.cache.cache import PictureCache
from wessl.encoder.vit import ViT
from wessl.evaluate.features.trained_encoder import TrainedEncoder, extract

State = dict[str, Any]
THUMBNAIL = 64
"""The longer side of a thumbnail, at most."""
RAMP = np.array(
    [[13, 20, 48], [38, 62, 118], [84, 112, 140], [160, 163, 138], [226, 214, 122], [255, 250, 200]]
)
"""Dark to light, blue to yellow: its order survives every colour blindness, and grey print."""


@torch.no_grad()
def gallery(
    encoder: TrainedEncoder,
    cache: PictureCache,
    samples: int = 12,
    neighbours: int = 6,
    looks: int = 6,
    most: int = 2000,
    features: Tensor | None = None,
) -> State:
    """Neighbours among up to ``most`` pictures, and the attention of a ViT on ``looks`` of them.

    ``features`` are those of all pictures, where they are there already.

    ::

        run.save_result("gallery", gallery(wessl.load(run.path), cache))
    """
    order = torch.randperm(len(cache), generator=torch.Generator().manual_seed(0))
    chosen = order[:most].sort().values
    labels = None if cache.labels is None else cache.labels[chosen]
    queries = spread(len(chosen), labels, samples)
    seen = extract(encoder, cache, chosen) if features is None else features[chosen]
    similarities, nearest = closest(seen, neighbours)

    def shown(at: int) -> State:
        index = int(chosen[at])
        return dict(
            index=index, label=label_of(cache, index), thumbnail=thumbnail(cache.picture(index))
        )

    return dict(
        format=1,
        kind="gallery",
        searched=len(chosen),
        pictures=len(cache),
        similarity="cosine of the teacher encoder's features",
        same_label=None if labels is None else agreement(labels, nearest),
        chance=None if labels is None else chance(labels),
        samples=[
            shown(at)
            | dict(
                neighbours=[
                    shown(int(other)) | dict(similarity=float(similarity))
                    for other, similarity in zip(nearest[at], similarities[at], strict=True)
                ]
            )
            for at in queries
        ],
        attention=attention(encoder, cache, chosen[torch.tensor(queries[:looks])]),
    )


def spread(count: int, labels: Tensor | None, samples: int) -> list[int]:
    """Positions to show: evenly spaced; with labels, one of each class in turn."""
    samples = min(samples, count)
    if labels is None:
        return torch.linspace(0, count - 1, samples).long().tolist()
    names, of_class = labels.unique(return_inverse=True)
    members = [(of_class == i).nonzero().flatten().tolist() for i in range(len(names))]
    turns = (group[turn] for turn in range(count) for group in members if turn < len(group))
    return [position for position, _ in zip(turns, range(samples), strict=False)]


def closest(features: Tensor, neighbours: int) -> tuple[Tensor, Tensor]:
    """Cosines and positions, ``(n, k)`` each, of every picture's nearest others, nearest first."""
    unit = F.normalize(features.double(), dim=1)
    cosines = (unit @ unit.T).fill_diagonal_(-torch.inf)
    similarities, nearest = cosines.topk(min(neighbours, len(unit) - 1), dim=1)
    return similarities.clamp(-1, 1), nearest


def agreement(labels: Tensor, nearest: Tensor) -> float | None:
    same = (labels[nearest] == labels[:, None]).double()
    return float(same.mean()) if same.numel() else None


def chance(labels: Tensor) -> float | None:
    """The share of pairs of different pictures that have one label."""
    n, counts = len(labels), labels.unique(return_counts=True)[1].double()
    return float((counts * (counts - 1)).sum() / (n * (n - 1))) if n > 1 else None


def attention(encoder: TrainedEncoder, cache: PictureCache, indices: Tensor) -> State | None:
    """Where ``[CLS]`` looks in the last block; nothing for an encoder without attention."""
    if not isinstance(encoder.encoder, ViT):
        return None
    vit = encoder.encoder
    device = next(vit.parameters()).device
    images = encoder.prepare(cache.batch(indices).map(lambda x: x.to(device)))
    rows, columns = (side // vit.patch_size for side in images.shape[2:])
    maps = vit.attention_maps(images)[:, :, 0, 1:].unflatten(2, (rows, columns)).float().cpu()
    d = encoder.description
    mean, std = (torch.tensor(d[name])[:, None, None] for name in ("mean", "std"))
    seen = ((images.cpu() * std + mean).clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1)
    return dict(
        block=vit.depth,
        grid=[rows, columns],
        samples=[
            dict(
                index=int(index),
                label=label_of(cache, int(index)),
                thumbnail=thumbnail(picture),
                mean=heat(of_heads.mean(0)),
                heads=[heat(one) for one in of_heads],
            )
            for index, picture, of_heads in zip(indices, seen, maps, strict=True)
        ],
    )


def label_of(cache: PictureCache, index: int) -> str | None:
    if cache.labels is None:
        return None
    label = int(cache.labels[index])
    return cache.classes[label] if cache.classes else str(label)


def thumbnail(picture: Tensor) -> str:
    """``(h, w, ch)`` bytes, shrunk to fit, as a data URI; of many channels the first three."""
    shown = picture[..., :3] if picture.shape[2] >= 3 else picture[..., 0]
    image = Image.fromarray(np.ascontiguousarray(shown.cpu().numpy()))
    image.thumbnail((THUMBNAIL, THUMBNAIL), Image.Resampling.LANCZOS)
    return data_uri(image, "PNG" if max(image.size) <= 32 else "JPEG")


def heat(map_rc: Tensor) -> str:
    """Attention of each patch as a small picture, from the map's own least to its most."""
    low, high = float(map_rc.min()), float(map_rc.max())
    shares = ((map_rc - low) / (high - low if high > low else 1.0)).numpy()
    places = np.linspace(0, 1, len(RAMP))
    colours = np.stack([np.interp(shares, places, channel) for channel in RAMP.T], -1)
    return data_uri(Image.fromarray(colours.round().astype(np.uint8)), "PNG")


def data_uri(image: Image.Image, form: str) -> str:
    file = io.BytesIO()
    options: State = dict(quality=85) if form == "JPEG" else dict(optimize=True)
    image.save(file, form, **options)
    return f"data:image/{form.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"
