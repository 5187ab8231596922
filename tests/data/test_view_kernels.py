"""Views by Triton kernels on a GPU against the plain ones, which are tested against PIL."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from wessl.data.draws import key, uniform
from wessl.data.views import kernels, resample
from wessl.data.views.config import Crop, Photometric, Views, dino_views, drawing_views, msn_views
from wessl.data.views.make import make_views

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

WILD = Photometric(1.0, 1.5, 1.5, 1.5, 0.5, grey=0.3, blur=0.7, blur_sigma=(0.3, 4.0), solarise=0.5)


@dataclass(frozen=True)
class Batch:
    pixels: Tensor
    heights: Tensor
    widths: Tensor

    def cuda(self) -> "Batch":
        return Batch(self.pixels.cuda(), self.heights.cuda(), self.widths.cuda())


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


def test_on_a_cpu_the_plain_code_makes_the_views():
    assert not kernels.usable(torch.zeros(2, 8, 8, 3, dtype=torch.uint8), dino_views().crops[0])


@on_gpu
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
def test_a_gpus_views_are_the_plain_ones(views, channels):
    batch = pictures(20, 80, 101, channels)
    there, indices = batch.cuda(), torch.arange(20) + 5
    assert all(kernels.usable(there.pixels, crop) for crop in views.crops)
    plain = made(batch, indices, views, torch.float32)
    fast = made(there, indices.cuda(), views, torch.float32)
    for x, y in zip(plain, fast, strict=True):
        difference = (x - y.cpu()).abs()
        assert difference.mean() < 1e-5
        # At a jump (solarise, the hue of an almost grey pixel) rounding may decide.
        assert (difference > 1e-3).float().mean() < 1e-3


@on_gpu
def test_a_gpus_view_depends_on_its_picture_alone():
    batch, views = pictures(9, 60, 70, 3).cuda(), dino_views(32, 16, 3)
    indices = torch.arange(9, device="cuda") * 1000
    together = made(batch, indices, views, torch.bfloat16)
    alone = Batch(batch.pixels[4:5], batch.heights[4:5], batch.widths[4:5])
    single = made(alone, indices[4:5], views, torch.bfloat16)
    for x, y in zip(together, single, strict=True):
        assert x.dtype == torch.bfloat16
        assert torch.equal(x.unflatten(0, (-1, 9))[:, 4], y)


@on_gpu
def test_a_gpu_plans_the_same_windows():
    random = torch.Generator().manual_seed(1)
    heights, widths = torch.randint(2, 700, (2, 5000), generator=random)
    indices = torch.randint(0, 10**7, (5000,), generator=random)
    crop = Crop(40, 2, (0.05, 1.0), aspect=(0.4, 2.5))
    keys = key(3, 4, "window"), key(3, 4, "colour")
    there = (x.cuda() for x in (heights, widths, indices))
    windows, table = kernels.plan.plan(*there, keys, crop, 3)
    draws = uniform(3, 4, indices, "window", 2 * resample.DRAWS).view(10000, -1).double()
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
