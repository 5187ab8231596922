"""Pictures made on the spot: smooth colours with noise, so that filters and coders have work."""

from pathlib import Path

import torch
import torch.nn.functional as F
from PIL import Image

from wessl.data.cache import Batch


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


def write_jpegs(folder: Path, count: int, height: int, width: int) -> None:
    """A folder of that many files; a few different pictures, again and again."""
    few = pictures(min(count, 16), height, width, 3, torch.device("cpu")).pixels.numpy()
    folder.mkdir(parents=True)
    for number in range(count):
        picture = Image.fromarray(few[number % len(few)])
        picture.save(folder / f"{number:05d}.jpg", quality=90)
