"""A trained encoder as others use it: pictures in, features out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from wessl.config import EncoderConfig, from_dict
from wessl.data.cache import Batch, PictureCache
from wessl.data.decode import PixelFormat, decode, with_channels
from wessl.data.views import centre_crop
from wessl.errors import UserError
from wessl.run import Run, build_encoder, read_weights

Picture = str | Path | Image.Image | np.ndarray[Any, Any]


class TrainedEncoder(nn.Module):
    """A frozen encoder with the picture size and normalisation it was trained for."""

    def __init__(self, encoder: nn.Module, description: dict[str, Any]):
        super().__init__()
        self.encoder, self.description = encoder.eval().requires_grad_(False), description
        self.dim: int = encoder.dim  # type: ignore[assignment]
        self.patch_tokens: bool = encoder.patch_tokens  # type: ignore[assignment]

    def forward(self, images: Tensor) -> Tensor:
        return self.encoder(images)

    def cls(self, images: Tensor) -> Tensor:
        return self.encoder.cls(images)  # type: ignore[operator]

    def prepare(self, batch: Batch) -> Tensor:
        """Short side resized, centre cropped, normalised: ``(b, ch, size, size)``."""
        d = self.description
        return centre_crop(batch, d["resize"], d["image_size"], d["mean"], d["std"])

    @torch.no_grad()
    def embed(
        self,
        images: Tensor | str | Path | Image.Image | Sequence[Picture],
        batch_size: int = 256,
    ) -> Tensor:
        """Features ``(n, dim)`` of a list of paths, PIL images, or uint8 arrays ``(h, w[, ch])``.

        A uint8 tensor is ``(n, h, w, ch)``; a float tensor ``(n, ch, h, w)`` is taken as already
        prepared.
        """
        if isinstance(images, (str, Path, Image.Image)):
            images = [images]
        device = next(self.encoder.parameters()).device
        parts = []
        for start in range(0, len(images), batch_size):
            part = images[start : start + batch_size]
            if isinstance(part, Tensor) and part.is_floating_point():
                prepared = part.to(device)
            else:
                prepared = self.prepare(self._batch(part).map(lambda x: x.to(device)))
            parts.append(self.cls(prepared).float().cpu())
        return torch.cat(parts) if parts else torch.empty(0, self.dim)

    def _batch(self, pictures: Tensor | Sequence[Picture]) -> Batch:
        return Batch.collate([self._pixels(picture) for picture in pictures])

    def _pixels(self, picture: Tensor | Picture) -> np.ndarray[Any, Any]:
        channels = self.description["channels"]
        if isinstance(picture, (str, Path)):
            return decode(str(picture), PixelFormat(channels))
        array = picture.cpu().numpy() if isinstance(picture, Tensor) else np.asarray(picture)
        if array.dtype != np.uint8 or array.ndim not in (2, 3):
            found = f"{array.dtype} {array.shape}"
            raise UserError(f"a picture must be uint8 (h, w) or (h, w, ch), got {found}")
        return with_channels(array if array.ndim == 3 else array[..., None], channels)


def load(path: str | Path, device: str = "cpu") -> TrainedEncoder:
    """The encoder of a run folder or of a weights file with timm's names.

    ::

        encoder = wessl.load("runs/digits")
        features = encoder.embed(["a.jpg", "b.jpg"])     # (2, dim)
    """
    path = Path(path)
    weights, description = Run(path).load_encoder() if path.is_dir() else read_weights(path)
    config = from_dict(EncoderConfig, description["encoder"])
    encoder = build_encoder(config, description["channels"])
    encoder.load_state_dict(weights)
    return TrainedEncoder(encoder.to(device), description)


@torch.no_grad()
def extract(
    encoder: TrainedEncoder,
    cache: PictureCache,
    indices: Tensor | None = None,
    batch_size: int = 256,
) -> Tensor:
    """Features ``(n, dim)`` of the pictures of a cache, all or those asked for, on the CPU."""
    device = next(encoder.encoder.parameters()).device
    parts = []
    for part in (torch.arange(len(cache)) if indices is None else indices).split(batch_size):
        batch = cache.batch(part).map(lambda x: x.to(device))
        parts.append(encoder.cls(encoder.prepare(batch)).float().cpu())
    return torch.cat(parts)
