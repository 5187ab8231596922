"""Views by Triton kernels on a GPU against the plain ones, which are tested against PIL.

With Triton installed, ``TRITON_INTERPRET=1`` runs the kernels themselves on a CPU too.
"""

import os
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from wessl.data.draws import key, uniform
from wessl.data.views import kernels, resample
from wessl.data.views.config import Crop, Photometric, Views, dino_views, drawing_views, msn_views
from wessl.data.views.make import make_views

INTERPRETED = kernels.plan.AVAILABLE and os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"

by_triton = pytest.mark.skipif(DEVICE == "cpu" and not INTERPRETED, reason="needs a GPU")
on_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")

WILD = Photometric(1.0, 1.5, 1.5, 1.5, 0.5, grey=0.3, blur=0.7, blur_sigma=(0.3, 4.0), solarise=0.5)


@dataclass(frozen=True)
class Batch:
    pixels: Tensor
    heights: Tensor
    widths: Tensor

    def there(self) -> "Batch":
        """Where the kernels run."""
        return Batch(*(x.to(DEVICE) for x in vars(self).values()))


def pictures(count: int, height: int, width: int, channels: int) -> Batch:
    """Random pictures of random sizes, zero beyond each one's own."""
    random = torch.Generator().manual_seed(0)
    shape = (count, height, width, channels)
    pixels = torch.randint(0, 256, shape, generator=random, dtype=torch.uint8)
    heights = torch.randint(height // 4, height + 1, (count,), generator=random)
    widths = torch.randint(width // 4, width + 1, (count,), generator=random)
    for picture, h, w in zip(pixels, heights, widths, strict=True):
        picture[h:], picture[:, w:] = 0, 0
    return Batch(pixels, heights, widths)


def made(batch: Batch, indices: Tensor, views: Views, dtype: torch.dtype) -> list[Tensor]:
    channels = batch.pixels.shape[3]
    mean, std = [0.4, 0.5, 0.6][:channels], [0.2, 0.25, 0.3][:channels]
    return make_views(batch, indices, views, 1, 9, mean, std, dtype)


@pytest.fixture
def by_kernels(monkeypatch):
    """``made`` by the kernels: interpreted, they take tensors of a CPU, and know no streams."""

    def make(batch: Batch, indices: Tensor, views: Views, dtype: torch.dtype) -> list[Tensor]:
        with monkeypatch.context() as patch:
            if INTERPRETED:
                patch.setattr(kernels, "usable", lambda pixels, crop: crop.inside)
                patch.setattr(kernels, "_compiled", set(views.crops))
            assert all(kernels.usable(batch.pixels, crop) for crop in views.crops)
            return made(batch, indices, views, dtype)

    return make


def test_on_a_cpu_the_plain_code_makes_the_views():
    assert not kernels.usable(torch.zeros(2, 8, 8, 3, dtype=torch.uint8), dino_views().crops[0])


@by_triton
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    "views",
    [
        dino_views(64, 31, 3),
        msn_views(50, 20, 2),
        Views((Crop(33, 2, (0.05, 1.0), photometric=WILD),)),
        Views((Crop(90, 1, (0.9, 1.0), flip=1.0, photometric=Photometric.off()),)),
    ],
    ids=["dino", "msn", "wild", "plain"],
)
def test_a_gpus_views_are_the_plain_ones(views, channels, by_kernels):
    count = 3 if INTERPRETED else 20
    batch, indices = pictures(count, 80, 101, channels), torch.arange(count) + 5
    plain = made(batch, indices, views, torch.float32)
    fast = by_kernels(batch.there(), indices.to(DEVICE), views, torch.float32)
    for x, y in zip(plain, fast, strict=True):
        difference = (x - y.cpu()).abs()
        assert difference.mean() < 1e-5
        # At a jump (solarise, the hue of an almost grey pixel) rounding may decide.
        assert (difference > 1e-3).float().mean() < 1e-3


@by_triton
def test_a_gpus_view_depends_on_its_picture_alone(by_kernels):
    dtype = torch.float16 if INTERPRETED else torch.bfloat16  # bf16 is wrong in the interpreter
    batch, views = pictures(5, 60, 70, 3).there(), dino_views(32, 16, 3)
    indices = torch.arange(5, device=DEVICE) * 1000
    together = by_kernels(batch, indices, views, dtype)
    alone = Batch(batch.pixels[4:5], batch.heights[4:5], batch.widths[4:5])
    single = by_kernels(alone, indices[4:5], views, dtype)
    for x, y in zip(together, single, strict=True):
        assert x.dtype == dtype
        assert torch.equal(x.unflatten(0, (-1, 5))[:, 4], y)


@by_triton
def test_a_gpu_plans_the_same_windows():
    random, count = torch.Generator().manual_seed(1), 500 if INTERPRETED else 5000
    heights, widths = torch.randint(2, 700, (2, count), generator=random)
    indices = torch.randint(0, 10**7, (count,), generator=random)
    crop = Crop(40, 2, (0.05, 1.0), aspect=(0.4, 2.5))
    keys = key(3, 4, "window"), key(3, 4, "colour")
    there = (x.to(DEVICE) for x in (heights, widths, indices))
    windows, table = kernels.plan.plan(*there, keys, crop, 3)
    draws = uniform(3, 4, indices, "window", 2 * resample.DRAWS).view(2 * count, -1).double()
    ends = [x[:, None].expand(-1, 2).flatten() for x in (heights, widths)]
    axes = resample.window_axes(draws, ends[0], ends[1], crop)
    expected = torch.stack([part for axis in axes for part in axis], dim=1)
    assert (windows.cpu() - expected).abs().max() < 1e-9
    assert torch.equal(table[:, 11].cpu() != 0, draws[:, resample.FLIP] < 0.5)


@on_gpu
def test_turned_views_and_many_channels_stay_with_the_plain_code():
    pixels = torch.zeros(2, 8, 8, 3, dtype=torch.uint8, device="cuda")
    assert not kernels.usable(pixels, drawing_views().crops[0])
    assert not kernels.usable(pixels[..., :2], dino_views().crops[0])
