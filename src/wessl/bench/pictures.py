"""Pictures made on the spot: smooth colours with noise, so that filters and coders have work."""

import io
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

from wessl.data.batch import Batch


def pictures(count: int, height: int, width: int, channels: int, device: torch.device) -> Batch:
    """The same ones every time, ``(count, height, width, channels)``, on the device."""
    random = torch.Generator(device).manual_seed(0)
    coarse = (count, channels, max(2, height // 16), max(2, width // 16))
    values = F.interpolate(
        torch.rand(coarse, generator=random, device=device), (height, width), mode="bilinear"
    )
    values += 0.1 * torch.randn(values.shape, generator=random, device=device)
    pixels = (values.clamp(0, 1) * 255).byte().permute(0, 2, 3, 1).contiguous()
    return Batch(pixels, *(torch.full((count,), side, device=device) for side in (height, width)))


def write_jpegs(folder: Path, count: int, height: int, width: int, sizes: int = 1) -> None:
    """A folder of that many files; a few different pictures, again and again.

    Of several ``sizes`` the first is the one given, each further one two pixels wider.
    """
    few = max(16, sizes)
    wide = pictures(min(count, few), height, width + 2 * (sizes - 1), 3, torch.device("cpu"))
    folder.mkdir(parents=True)
    files = [
        _jpeg(picture[:, : width + 2 * (i % sizes)])
        for i, picture in enumerate(wide.pixels.numpy())
    ]
    for number in range(count):
        (folder / f"{number:05d}.jpg").write_bytes(files[number % len(files)])


def _jpeg(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "jpeg", quality=90)
    return file.getvalue()
