"""Views against PIL, a plain loop and a float64 oracle, on photographs and on digits."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor

from wessl.data.draws import uniform
from wessl.data.views import photometric, resample
from wessl.data.views.config import (
    Crop,
    Interpolation,
    Photometric,
    Views,
    dino_views,
    drawing_views,
    msn_views,
)
from wessl.data.views.make import centre_crop, make_views, render
from wessl.errors import UserError

OFF = Photometric.off()
PLAIN = Crop(size=64, count=1, area=(0.25, 1.0), flip=0.0, photometric=OFF)


@dataclass(frozen=True)
class Batch:
    pixels: Tensor
    heights: Tensor
    widths: Tensor


def pad(images: list[np.ndarray]) -> Batch:
    """Pictures ``(h, w, c)`` in the top left corners of one zero frame."""
    heights, widths = ([image.shape[axis] for image in images] for axis in (0, 1))
    frame = np.zeros((len(images), max(heights), max(widths), images[0].shape[2]), np.uint8)
    for place, image in zip(frame, images, strict=True):
        place[: image.shape[0], : image.shape[1]] = image
    return Batch(torch.from_numpy(frame), torch.tensor(heights), torch.tensor(widths))


@pytest.fixture(scope="module")
def photos() -> list[np.ndarray]:
    """Six photographs of different sizes, wide and tall."""
    china, flower = (Image.fromarray(x) for x in load_sample_images().images)
    return [
        np.asarray(image)
        for image in (
            china.resize((341, 256)),
            flower.resize((200, 260)),
            china.crop((100, 50, 400, 350)),
            flower.crop((200, 100, 500, 260)),
            china.resize((70, 50)),
            flower.resize((40, 90)),
        )
    ]


def views_of(images: list[np.ndarray], views: Views, step: int = 3) -> list[Tensor]:
    """Values in [0, 1]: a mean of 0 and a deviation of 1 normalise nothing."""
    channels = images[0].shape[2]
    indices = torch.arange(len(images)) + 100
    return make_views(pad(images), indices, views, 0, step, [0.0] * channels, [1.0] * channels)


def loop_window(u: list[float], height: int, width: int, crop: Crop) -> tuple[int, int, int, int]:
    """torchvision's RandomResizedCrop, try by try: left, top, right, bottom."""
    for area_draw, aspect_draw in zip(u[:10], u[10:20], strict=True):
        area = height * width * (crop.area[0] + (crop.area[1] - crop.area[0]) * area_draw)
        low, high = math.log(crop.aspect[0]), math.log(crop.aspect[1])
        aspect = math.exp(low + (high - low) * aspect_draw)
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(u[20] * (width - w + 1)), int(u[21] * (height - h + 1))
            return left, top, left + w, top + h
    ratio = width / height
    w, h = width, height
    if ratio < crop.aspect[0]:
        h = round(width / crop.aspect[0])
    elif ratio > crop.aspect[1]:
        w = round(height * crop.aspect[1])
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def windows(images: list[np.ndarray], crop: Crop, step: int = 3) -> list[tuple[int, ...]]:
    indices = torch.arange(len(images)) + 100
    draws = uniform(0, step, indices, "crop 0", crop.count * resample.DRAWS).double()
    return [
        loop_window(u.tolist(), *image.shape[:2], crop)
        for image, u in zip(images, draws, strict=True)
    ]


def pil_view(image: np.ndarray, window: tuple[int, ...], crop: Crop) -> np.ndarray:
    filters = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
    cropped = Image.fromarray(image).crop(window)  # type: ignore[arg-type]
    return np.asarray(cropped.resize((crop.size, crop.size), filters[crop.interpolation]))


def dim(image: np.ndarray) -> np.ndarray:
    """Half the contrast: a cubic's overshoot, which PIL clips between its two passes, fits in."""
    return image // 2 + 64


def assert_near(view: Tensor, wanted: np.ndarray, largest: float) -> None:
    """Within PIL's two roundings to 8 bits, which alone make 0.3 of a level in the mean."""
    error = np.abs(view.permute(1, 2, 0).numpy() * 255 - wanted)
    assert error.mean() < 0.5
    assert error.max() < largest


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("size", [16, 96, 224])
def test_crop_and_resize_are_pils_to_rounding(
    photos: list[np.ndarray], size: int, interpolation: Interpolation
) -> None:
    """Down to 16 and up to 224, from pictures of six sizes in one padded batch."""
    crop = replace(PLAIN, size=size, interpolation=interpolation)
    for images, largest in [(photos, 12.0), ([dim(x) for x in photos], 1.5)]:
        [ours] = views_of(images, Views((crop,)))
        for view, image, window in zip(ours, images, windows(images, crop), strict=True):
            assert_near(view, pil_view(image, window, crop), largest)


def test_windows_equal_the_loop_of_tries_and_its_fallback() -> None:
    shapes = [(48, 64), (64, 64), (300, 20), (10, 500), (1, 1), (3, 4)] * 100
    draws = uniform(0, 0, torch.arange(len(shapes)), "test", resample.DRAWS).double()
    sizes = torch.tensor(shapes)
    for area in [(0.08, 0.25), (0.25, 1.0), (0.9, 1.0)]:
        crop = replace(PLAIN, area=area)
        rows, columns = resample.window_axes(draws, sizes[:, 0], sizes[:, 1], crop)
        for i, (u, shape) in enumerate(zip(draws, shapes, strict=True)):
            ours = [x[i].item() for x in (columns.low, rows.low, columns.high, rows.high)]
            assert ours == list(loop_window(u.tolist(), *shape, crop))


def test_flip_mirrors_half_of_the_views(photos: list[np.ndarray]) -> None:
    upright, mirrored = (
        views_of(photos, Views((replace(PLAIN, flip=flip),)))[0] for flip in (0.0, 1.0)
    )
    assert torch.allclose(upright.flip(3), mirrored, atol=1e-5)
    ramp = np.arange(8, dtype=np.uint8)[None, :, None].repeat(8, 0)
    [half] = views_of([ramp] * 2000, Views((Crop(8, 1, (1.0, 1.0), photometric=OFF),)))
    share = (half[:, 0, 0, 0] > half[:, 0, 0, 7]).double().mean().item()
    assert share == pytest.approx(0.5, abs=0.04)


def test_a_view_does_not_depend_on_the_batch_it_is_made_in(photos: list[np.ndarray]) -> None:
    views = dino_views(global_size=64, local_size=32, local_count=3)
    together = make_views(pad(photos), torch.arange(6) + 9, views, 1, 2, [0.5] * 3, [0.2] * 3)
    for i in (0, 3, 5):
        alone = make_views(
            pad([photos[i]]), torch.tensor([i + 9]), views, 1, 2, [0.5] * 3, [0.2] * 3
        )
        for many, one in zip(together, alone, strict=True):
            assert torch.allclose(many.unflatten(0, (-1, 6))[:, i], one, atol=1e-4)


def test_a_batch_too_large_for_one_pass_is_made_in_parts() -> None:
    random = np.random.default_rng(0)
    images = [random.integers(0, 256, (24 + i, 40 - i, 3), dtype=np.uint8) for i in range(14)]
    views = Views((replace(PLAIN, size=160, count=10),))
    [whole] = views_of(images, views)
    for i in (0, 9, 13):
        [alone] = make_views(
            pad([images[i]]), torch.tensor([i + 100]), views, 0, 3, [0.0] * 3, [1.0] * 3
        )
        assert torch.allclose(whole.unflatten(0, (10, 14))[:, i], alone, atol=1e-4)


def test_views_are_deterministic_and_differ_between_steps(photos: list[np.ndarray]) -> None:
    views = dino_views(global_size=32, local_size=16, local_count=2)
    first, again, later = (views_of(photos, views, step) for step in (1, 1, 2))
    for x, y, z in zip(first, again, later, strict=True):
        assert torch.equal(x, y)
        assert not torch.allclose(x, z, atol=0.1)


def test_neighbouring_crops_of_one_size_come_as_one_view_major_tensor(
    photos: list[np.ndarray],
) -> None:
    crops = [replace(PLAIN, size=32, count=2), replace(PLAIN, size=32), replace(PLAIN, size=16)]
    large, small = views_of(photos, Views(tuple(crops)))
    assert large.shape == (3 * 6, 3, 32, 32)
    assert small.shape == (6, 3, 16, 16)
    [first_kind] = views_of(photos, Views((crops[0],)))
    assert torch.equal(large[:12], first_kind)
    assert torch.equal(first_kind[:6], views_of(photos, Views((replace(crops[0], count=1),)))[0])


def test_values_are_normalised_and_cast(photos: list[np.ndarray]) -> None:
    views, mean, std = Views((PLAIN,)), [0.4, 0.5, 0.6], [0.2, 0.3, 0.4]
    batch, indices = pad(photos), torch.arange(6) + 100
    [plain] = views_of(photos, views)
    [ours] = make_views(batch, indices, views, 0, 3, mean, std)
    wanted = (plain - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    assert torch.allclose(ours, wanted, atol=1e-5)
    [half] = make_views(batch, indices, views, 0, 3, mean, std, dtype=torch.bfloat16)
    assert torch.equal(half, ours.bfloat16())


@pytest.mark.parametrize("channels", [1, 2, 5])
def test_pictures_of_any_number_of_channels_have_views(channels: int) -> None:
    random = np.random.default_rng(0)
    images = [random.integers(0, 256, (20, 30, channels), dtype=np.uint8) for _ in range(4)]
    large, small = views_of(images, dino_views(16, 8, 3))
    assert large.shape == (2 * 4, channels, 16, 16)
    assert small.shape == (3 * 4, channels, 8, 8)
    assert large.min() >= 0
    assert large.max() <= 1


def kernel(x: np.ndarray, a: float | None) -> np.ndarray:
    """Keys' cubic with parameter a, or the triangle."""
    x = np.abs(x)
    if a is None:
        return np.maximum(1 - x, 0)
    near = (a + 2) * x**3 - (a + 3) * x**2 + 1
    far = a * (x**3 - 5 * x**2 + 8 * x - 4)
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def upright_canvas(
    image: np.ndarray,
    top: float,
    left: float,
    steps: tuple[float, float],
    side: int,
    a: float | None,
) -> np.ndarray:
    """``(side, side)`` by one weighted sum for each output, a row and then a column at a time."""
    for axis, (start, step) in enumerate(zip((top, left), steps, strict=True)):
        length, margin, width = image.shape[axis], min(step, 1) / 2, max(step, 1)
        lines = []
        for i in range(side):
            centre = min(max(start + (i + 0.5) * step, margin), length - margin)
            weight = kernel((np.arange(length) + 0.5 - centre) / width, a)
            lines.append(np.tensordot(weight / weight.sum(), image, (0, axis)))
        image = np.stack(lines, axis)
    return image


@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
@pytest.mark.parametrize("shape", [(8, 8), (40, 56)])
def test_turned_views_equal_a_float64_oracle(
    shape: tuple[int, int], interpolation: Interpolation
) -> None:
    """The upright canvas by plain sums; then scipy's linear map, or the cubic one by hand."""
    size, n = 16, 6
    crop = Crop(
        size,
        1,
        (0.6, 1.3),
        flip=0.0,
        interpolation=interpolation,
        rotation=20.0,
        shear=0.3,
        photometric=OFF,
    )
    random = np.random.default_rng(0)
    images = ndimage.gaussian_filter(random.uniform(0, 1, (n, *shape)), (0, 1, 1))
    draws = uniform(0, 0, torch.arange(n), "test", resample.DRAWS).double()
    pictures = torch.from_numpy(images).float()[:, :, None]
    ends = torch.full((n,), shape[0]), torch.full((n,), shape[1])
    ours = render(
        pictures, *ends, draws[:, None].float(), torch.zeros(n, 1, photometric.DRAWS), crop
    )
    side = resample.canvas_side(crop)
    for i, u in enumerate(draws.numpy()):
        area = (0.6 + 0.7 * u[0]) * shape[0] * shape[1]
        aspect = math.exp(math.log(3 / 4) + math.log(16 / 9) * u[10])
        h, w = math.sqrt(area / aspect), math.sqrt(area * aspect)
        top, left = u[21] * (shape[0] - h), u[20] * (shape[1] - w)
        spare = (side - size) / 2
        steps = (h / size, w / size)
        canvas = upright_canvas(
            images[i],
            top - spare * steps[0],
            left - spare * steps[1],
            steps,
            side,
            -0.5 if interpolation == "bicubic" else None,
        )
        angle, slant = (2 * u[23] - 1) * math.radians(20), (2 * u[24] - 1) * 0.3
        y, x = np.mgrid[:size, :size] + 0.5 - size / 2
        x, y = x + slant * y, y
        x, y = math.cos(angle) * x - math.sin(angle) * y, math.sin(angle) * x + math.cos(angle) * y
        x, y = x + side / 2 - 0.5, y + side / 2 - 0.5
        if interpolation == "bilinear":
            wanted = ndimage.map_coordinates(canvas, [y, x], order=1)
        else:
            places = np.arange(side)
            # torch's own cubic has a = -3/4.
            row, column = (kernel(p[..., None] - places, -0.75) for p in (y, x))
            wanted = np.einsum("ijr,rc,ijc->ij", row, canvas, column)
        assert ours[i, :, 0].numpy() == pytest.approx(wanted.clip(0, 1), abs=1e-4)


def test_turned_views_of_a_smooth_picture_follow_the_exact_map() -> None:
    """A picture given by a formula, seen by the formula at the mapped place."""
    size, height, width = 48, 200, 200

    def formula(y: np.ndarray, x: np.ndarray) -> np.ndarray:
        return 0.5 + 0.25 * np.sin(y / 23) + 0.2 * np.cos(x / 17 + y / 40)

    y, x = np.mgrid[:height, :width] + 0.5
    picture = torch.from_numpy(formula(y, x)).float()[None, :, None]
    crop = Crop(size, 1, (0.2, 0.2), (1.0, 1.0), 0.0, rotation=30, shear=0.2, photometric=OFF)
    draws = torch.full((1, 1, resample.DRAWS), 0.5)
    draws[..., resample.ANGLE], draws[..., resample.SLANT] = 1.0, 0.0
    ends = torch.tensor([height]), torch.tensor([width])
    ours = render(picture, *ends, draws, torch.zeros(1, 1, photometric.DRAWS), crop)[0, :, 0]
    scale = math.sqrt(0.2) * height / size
    y, x = (np.mgrid[:size, :size] + 0.5 - size / 2) * scale
    x = x - 0.2 * y
    cos, sin = math.cos(math.radians(30)), math.sin(math.radians(30))
    wanted = formula(sin * x + cos * y + height / 2, cos * x - sin * y + width / 2)
    assert ours.numpy() == pytest.approx(wanted, abs=1 / 255)


def test_a_window_larger_than_the_picture_repeats_its_edge() -> None:
    drawing = np.full((12, 12, 1), 40, np.uint8)
    drawing[5:7, 5:7] = 250
    crop = Crop(32, 4, (2.5, 2.5), (1.0, 1.0), rotation=180.0, shear=0.3, photometric=OFF)
    [ours] = views_of([drawing] * 8, Views((crop,)))
    border = torch.cat([ours[:, 0, 0], ours[:, 0, -1], ours[:, 0, :, 0], ours[:, 0, :, -1]])
    assert border.numpy() == pytest.approx(40 / 255, abs=1e-5)
    assert (ours.amax(dim=(1, 2, 3)) > 0.9).all()
    # Upright, the strips above and below hold the picture's first and last row.
    gradient = np.linspace(0, 255, 12).astype(np.uint8)[:, None, None].repeat(12, 1)
    [upright] = views_of([gradient], Views((Crop(24, 1, (4.0, 4.0), (1.0, 1.0), photometric=OFF),)))
    assert upright.min().item() == pytest.approx(0.0, abs=1e-5)
    assert upright.max().item() == pytest.approx(1.0, abs=1e-5)
    assert (upright.diff(dim=2) >= -1e-5).all()


def test_outside_can_take_the_colour_of_the_corners() -> None:
    """White strokes to every edge of a grey picture: the edge is not the background here."""
    cross = np.full((12, 12, 1), 40, np.uint8)
    cross[5:7], cross[:, 5:7], cross[0, 0] = 250, 250, 250
    crop = Crop(48, 1, (4.0, 4.0), (1.0, 1.0), interpolation="bilinear", photometric=OFF)
    for rotation in (0.0, 5.0):
        views = Views((replace(crop, rotation=rotation, outside="corners"),))
        [ours] = views_of([cross] * 8, views)
        for view in ours:
            bright = (view[0] > 0.5).nonzero()
            assert (bright.amax(0) - bright.amin(0) < 30).all()
        assert (ours - 40 / 255 > -1e-5).all()
    [edge] = views_of([cross], Views((crop,)))
    assert (edge[0, 0] > 0.5).sum() > (ours[0, 0] > 0.5).sum() + 100


def test_an_upright_view_of_the_affine_path_is_the_plain_one(photos: list[np.ndarray]) -> None:
    picture = torch.tensor(photos[2]).permute(0, 2, 1)[None].float() / 255
    ends = torch.tensor([picture.shape[1]]), torch.tensor([picture.shape[3]])
    geometry = torch.full((1, 1, resample.DRAWS), 0.5)
    colours = torch.zeros(1, 1, photometric.DRAWS)
    for size in (15, 64):
        plain = Crop(size, 1, (1.0, 1.0), (1.0, 1.0), flip=0.0, photometric=OFF)
        turned = replace(plain, rotation=45.0, shear=0.5)
        ours = render(picture, *ends, geometry, colours, turned)
        assert torch.allclose(ours, render(picture, *ends, geometry, colours, plain), atol=1e-4)


def short_side(image: Image.Image, short: int) -> Image.Image:
    w, h = image.size
    size = (short, int(short * h / w)) if w <= h else (int(short * w / h), short)
    return image.resize(size, Image.Resampling.BICUBIC)


@pytest.mark.parametrize(
    ("resize", "size"), [(256, 224), (64, 57), ((256, 256), 224), ((80, 60), 33)]
)
def test_centre_crop_is_pils_to_rounding(
    photos: list[np.ndarray], resize: int | tuple[int, int], size: int
) -> None:
    for images, largest in [(photos, 12.0), ([dim(x) for x in photos], 1.5)]:
        ours = centre_crop(pad(images), resize, size, [0.0] * 3, [1.0] * 3)
        for view, array in zip(ours, images, strict=True):
            image = Image.fromarray(array)
            if isinstance(resize, int):
                image = short_side(image, resize)
            else:
                image = image.resize(resize[::-1], Image.Resampling.BICUBIC)
            left, top = (round((side - size) / 2) for side in image.size)
            assert_near(view, np.asarray(image.crop((left, top, left + size, top + size))), largest)


def test_centre_crop_refuses_a_crop_larger_than_the_resized_picture(
    photos: list[np.ndarray],
) -> None:
    with pytest.raises(ValueError, match="smaller than the centre crop"):
        centre_crop(pad(photos), 200, 224, [0.0] * 3, [1.0] * 3)


def test_views_never_wait_for_the_device() -> None:
    """On the meta device there are no numbers: reading one back to the host would fail."""
    meta = torch.device("meta")
    batch = Batch(
        torch.empty((4, 60, 80, 3), dtype=torch.uint8, device=meta),
        torch.empty(4, dtype=torch.int64, device=meta),
        torch.empty(4, dtype=torch.int64, device=meta),
    )
    indices = torch.empty(4, dtype=torch.int64, device=meta)
    for views in (dino_views(32, 16, 6), msn_views(32, 16, 6), drawing_views(16)):
        outputs = make_views(batch, indices, views, 0, 0, [0.5] * 3, [0.5] * 3)
        assert sum(len(output) for output in outputs) == 4 * views.count
    assert centre_crop(batch, 32, 28, [0.5] * 3, [0.5] * 3).shape == (4, 3, 28, 28)


@pytest.mark.parametrize("crop", [dino_views(16, 8, 2).crops[1], drawing_views(16).crops[0]])
def test_rendering_is_one_graph(crop: Crop) -> None:
    random = torch.Generator().manual_seed(0)
    pictures = torch.rand(2, 20, 3, 24, generator=random)
    sizes = torch.tensor([20, 14]), torch.tensor([18, 24])
    geometry = torch.rand(2, crop.count, resample.DRAWS, generator=random)
    colours = torch.rand(2, crop.count, photometric.DRAWS, generator=random)
    compiled = torch.compile(render, fullgraph=True, dynamic=False, backend="eager")
    ours = compiled(pictures, *sizes, geometry, colours, crop)
    assert torch.allclose(ours, render(pictures, *sizes, geometry, colours, crop), atol=1e-6)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("views", [dino_views(64, 32, 3), drawing_views(32)])
def test_a_gpu_makes_the_same_views_without_waiting(photos: list[np.ndarray], views: Views) -> None:
    batch, indices = pad(photos), torch.arange(6)
    on_cpu = make_views(batch, indices, views, 0, 0, [0.0] * 3, [1.0] * 3)
    there = Batch(batch.pixels.cuda(), batch.heights.cuda(), batch.widths.cuda())
    indices = indices.cuda()
    torch.cuda.set_sync_debug_mode("error")
    try:
        on_gpu = make_views(there, indices, views, 0, 0, [0.0] * 3, [1.0] * 3)
        again = make_views(there, indices, views, 0, 0, [0.0] * 3, [1.0] * 3)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for x, y, z in zip(on_cpu, on_gpu, again, strict=True):
        assert torch.equal(y, z)
        assert (x - y.cpu()).abs().mean() < 1e-4


def test_digits_keep_their_background_and_are_never_mirrored() -> None:
    digits = (load_digits().images[:40, :, :, None] * 15.9).astype(np.uint8)
    [ours] = views_of(list(digits), drawing_views(16))
    assert ours.shape == (80, 1, 16, 16)
    assert drawing_views(16).crops[0].flip == 0
    means = ours.mean(dim=(1, 2, 3))
    assert (means > 0.05).all()
    assert ours[:, 0, :2, :2].mean() < 0.1


def test_dinos_and_msns_views_are_the_published_ones() -> None:
    first, second, local = dino_views().crops
    assert [(c.size, c.count, c.area) for c in (first, second, local)] == [
        (224, 1, (0.25, 1.0)),
        (224, 1, (0.25, 1.0)),
        (96, 10, (0.08, 0.25)),
    ]
    blur_and_solarise = [(c.photometric.blur, c.photometric.solarise) for c in dino_views().crops]
    assert blur_and_solarise == [(1.0, 0.0), (0.1, 0.2), (0.5, 0.0)]
    assert all(
        (p.jitter, p.brightness, p.contrast, p.saturation, p.hue, p.grey, p.blur_sigma)
        == (0.8, 0.4, 0.4, 0.2, 0.1, 0.2, (0.1, 2.0))
        for p in (c.photometric for c in dino_views().crops)
    )
    assert {(c.interpolation, c.flip) for c in dino_views().crops} == {("bicubic", 0.5)}
    assert dino_views().roles == ("global",) * 2 + ("local",) * 10

    target, anchor, small = msn_views().crops
    assert [(c.size, c.count, c.area, c.role) for c in (target, anchor, small)] == [
        (224, 1, (0.3, 1.0), "target"),
        (224, 1, (0.3, 1.0), "local"),
        (96, 10, (0.05, 0.3), "local"),
    ]
    assert {c.interpolation for c in msn_views().crops} == {"bilinear"}
    assert all(
        (p.brightness, p.contrast, p.saturation, p.hue, p.blur, p.solarise)
        == (0.4, 0.4, 0.4, 0.1, 0.5, 0.0)
        for p in (c.photometric for c in msn_views().crops)
    )


def test_wrong_settings_are_named() -> None:
    with pytest.raises(UserError, match=r"hue must be between 0 and 0.5, got 0.7"):
        Photometric(hue=0.7)
    with pytest.raises(UserError, match="blur must be between 0 and 1"):
        Photometric(blur=1.1)
    with pytest.raises(UserError, match="area must be two positive numbers"):
        Crop(16, 1, (0.5, 0.2))
    with pytest.raises(UserError, match="crops must be ordered"):
        Views((replace(PLAIN, role="local"), PLAIN))
    with pytest.raises(ValueError, match="1 channels, but mean has 3"):
        make_views(
            pad([np.zeros((8, 8, 1), np.uint8)]),
            torch.arange(1),
            Views((PLAIN,)),
            0,
            0,
            [0.5] * 3,
            [0.5] * 3,
        )
