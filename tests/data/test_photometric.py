"""Each change of colour and sharpness against PIL, colorsys, scipy or a plain loop.

PIL rounds to 8 bits after each step, so agreement is stated in 255ths.
"""

import colorsys

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from scipy import ndimage
from sklearn.datasets import load_sample_images
from torch import Tensor

from wessl.data.draws import uniform
from wessl.data.views import photometric as ph
from wessl.data.views.config import Photometric

OFF = Photometric.off()


@pytest.fixture(scope="module")
def photos() -> list[Image.Image]:
    return [Image.fromarray(x).resize((160, 120)) for x in load_sample_images().images]


def to_tensor(photos: list[Image.Image]) -> Tensor:
    """``(n, h, 3, w)`` in [0, 1]."""
    arrays = np.stack([np.asarray(photo, dtype=np.float32) for photo in photos])
    return torch.from_numpy(arrays / 255).permute(0, 1, 3, 2).contiguous()


def errors(ours: Tensor, pil: list[Image.Image]) -> Tensor:
    """Absolute differences in 255ths."""
    return (ours - to_tensor([image.convert("RGB") for image in pil])).abs() * 255


def noise(n: int, size: int, channels: int = 3) -> Tensor:
    return torch.rand(n, size, channels, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("factor", [0.6, 0.9, 1.4])
def test_brightness_contrast_and_saturation_are_pils(
    photos: list[Image.Image], factor: float
) -> None:
    x, f, none = to_tensor(photos), torch.full((2,), factor), torch.zeros(2)
    ours = [
        (ph.blend(x, f, none, none), ImageEnhance.Brightness),
        (ph.blend(x, f, 1 - f, none), ImageEnhance.Contrast),
        (ph.blend(x, f, none, 1 - f), ImageEnhance.Color),
    ]
    for changed, enhancer in ours:
        error = errors(changed, [enhancer(photo).enhance(factor) for photo in photos])
        assert error.max() <= 1.5
        assert error.mean() <= 0.5


def test_grey_is_pils(photos: list[Image.Image]) -> None:
    always = ph.photometric(
        to_tensor(photos), torch.zeros(2, ph.DRAWS), Photometric(jitter=0, grey=1, blur=0)
    )
    error = errors(always, [ImageOps.grayscale(photo) for photo in photos])
    assert error.max() <= 1.01


@pytest.mark.parametrize("turns", [-0.1, 0.03, 0.1, 0.5])
def test_hue_is_colorsys_to_rounding(turns: float) -> None:
    x = noise(1, 12)
    x[0, :4] = (x[0, :4] * 3).round() / 3  # ties between channels, greys, black and white
    ours = ph.rotate_hue(x, torch.tensor([turns])).permute(0, 1, 3, 2).reshape(-1, 3)
    for before, after in zip(x.permute(0, 1, 3, 2).reshape(-1, 3).tolist(), ours, strict=True):
        hue, saturation, value = colorsys.rgb_to_hsv(*before)
        wanted = colorsys.hsv_to_rgb((hue + turns) % 1, saturation, value)
        assert after.tolist() == pytest.approx(wanted, abs=2e-6)


@pytest.mark.parametrize("levels", [-25, 8, 25])
def test_hue_is_pils_within_its_8_bit_hsv(photos: list[Image.Image], levels: int) -> None:
    """PIL keeps hue and saturation in 8 bits: half a level in the mean, 8 in vivid pixels."""
    turned = []
    for photo in photos:
        hue, saturation, value = photo.convert("HSV").split()
        shifted = Image.fromarray(((np.asarray(hue).astype(int) + levels) % 256).astype(np.uint8))
        turned.append(Image.merge("HSV", (shifted, saturation, value)).convert("RGB"))
    error = errors(ph.rotate_hue(to_tensor(photos), torch.full((2,), levels / 255)), turned)
    assert error.mean() <= 0.5
    assert error.max() <= 8


@pytest.mark.parametrize("sigma", [0.1, 0.5, 1.0, 2.0])
def test_blur_is_a_gaussian_with_repeated_edges(sigma: float) -> None:
    x = noise(2, 24)
    ours = ph.blur(x, torch.full((2,), sigma), largest=2.0)
    exact = ndimage.gaussian_filter1d(x.double().numpy(), sigma, 1, mode="nearest", radius=8)
    exact = ndimage.gaussian_filter1d(exact, sigma, 3, mode="nearest", radius=8)
    assert ours.numpy() == pytest.approx(exact, abs=1e-5)


@pytest.mark.parametrize(("sigma", "mean"), [(0.1, 0.01), (0.7, 0.8), (1.0, 0.6), (2.0, 0.6)])
def test_blur_is_near_pils_approximation(
    photos: list[Image.Image], sigma: float, mean: float
) -> None:
    """PIL runs a box filter three times, and repeats the edge anew for each of them."""
    blurred = ph.blur(to_tensor(photos), torch.full((2,), sigma), largest=2.0)
    error = errors(blurred, [photo.filter(ImageFilter.GaussianBlur(sigma)) for photo in photos])
    assert error.mean() <= mean
    assert error[:, 4:-4, :, 4:-4].max() <= 10


@pytest.mark.parametrize("size", [1, 2, 5])
def test_blur_of_pictures_smaller_than_its_kernel_keeps_a_constant(size: int) -> None:
    x = torch.full((3, size, 1, size), 0.7)
    assert torch.allclose(ph.blur(x, torch.tensor([0.0, 0.5, 2.0]), largest=2.0), x, atol=1e-6)


def test_solarise_is_pils(photos: list[Image.Image]) -> None:
    always = Photometric(jitter=0, grey=0, blur=0, solarise=1.0)
    ours = ph.photometric(to_tensor(photos), torch.zeros(2, ph.DRAWS), always)
    error = errors(ours, [ImageOps.solarize(photo, threshold=128) for photo in photos])
    assert error.max() <= 1e-3


def jitter_loop(x: np.ndarray, order: list[float], factors: list[float]) -> np.ndarray:
    """One picture ``(h, 3, w)`` in float64, one operation after another."""

    def grey(x: np.ndarray) -> np.ndarray:
        return 0.299 * x[:, 0] + 0.587 * x[:, 1] + 0.114 * x[:, 2]

    for op in np.argsort(order):
        f = factors[op]
        if op == 0:
            x = f * x
        elif op == 1:
            x = f * x + (1 - f) * grey(x).mean()
        elif op == 2:
            x = f * x + (1 - f) * grey(x)[:, None]
        else:
            turned = np.empty_like(x)
            for i, j in np.ndindex(x.shape[0], x.shape[2]):
                hue, saturation, value = colorsys.rgb_to_hsv(*x[i, :, j])
                turned[i, :, j] = colorsys.hsv_to_rgb((hue + f) % 1, saturation, value)
            x = turned
        x = x.clip(0, 1)
    return x


def test_jitter_equals_a_loop_in_each_pictures_own_order() -> None:
    n = 30
    x, draws = noise(n, 5), uniform(0, 0, torch.arange(n), "test", 9)
    chosen, order, amounts = draws[:, 0] < 0.8, draws[:, 1:5], draws[:, 5:]
    config = Photometric(brightness=0.4, contrast=0.5, saturation=1.5, hue=0.2)
    ours = ph.jitter(x, chosen, order, amounts, config)
    for i in range(n):
        u = amounts[i].double().tolist()
        factors = [0.6 + 0.8 * u[0], 0.5 + u[1], 2.5 * u[2], -0.2 + 0.4 * u[3]]
        wanted = jitter_loop(x[i].double().numpy(), order[i].tolist(), factors)
        wanted = wanted if chosen[i] else x[i].numpy()
        assert ours[i].numpy() == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize(
    "config",
    [
        Photometric(hue=0),
        Photometric(brightness=0, contrast=0, saturation=0),
        Photometric(contrast=0, hue=0),
        OFF,
    ],
)
def test_a_switched_off_part_is_a_part_of_strength_zero(config: Photometric) -> None:
    """Leaving an operation out changes neither the draws nor the result of the others."""
    n = 20
    x, draws = noise(n, 6), uniform(0, 0, torch.arange(n), "test", ph.DRAWS)
    tiny = {
        name: getattr(config, name) or 1e-9
        for name in ("brightness", "contrast", "saturation", "hue", "grey", "blur", "solarise")
    }
    slow = Photometric(jitter=config.jitter or 1e-9, **tiny)
    ours, all_on = ph.photometric(x, draws, config), ph.photometric(x, draws, slow)
    assert torch.allclose(ours, all_on, atol=1e-5)


def test_probabilities_come_out_right() -> None:
    n = 20_000
    x = noise(1, 4).expand(n, -1, -1, -1)
    draws = uniform(0, 0, torch.arange(n), "test", ph.DRAWS)
    for name, p in [("jitter", 0.8), ("grey", 0.2), ("blur", 0.1), ("solarise", 0.2)]:
        changed = ph.photometric(x, draws, Photometric(**{**vars(OFF), name: p}))
        share = ((changed - x).abs().amax(dim=(1, 2, 3)) > 1e-4).double().mean().item()
        # A blur of sigma 0.1 to 0.3 leaves pixels as they are; nothing else does.
        expected = p * (0.9 if name == "blur" else 1.0)
        assert share == pytest.approx(expected, abs=0.01), name


def test_blur_strength_is_uniform_over_its_range() -> None:
    n = 4000
    dot = torch.zeros(n, 33, 1, 33)
    dot[:, 16, 0, 16] = 1.0
    draws = uniform(0, 0, torch.arange(n), "test", ph.DRAWS)
    config = Photometric(jitter=0, grey=0, blur=1.0, blur_sigma=(1.0, 2.0))
    rows = ph.photometric(dot, draws, config).sum(dim=(2, 3))
    sigma = (rows * (torch.arange(33) - 16).square()).sum(1).sqrt()
    counts = torch.histc(sigma, bins=4, min=1.0, max=2.0)
    assert counts.numpy() == pytest.approx(n / 4, rel=0.12)


def test_pictures_of_other_than_three_channels_keep_their_channels_apart() -> None:
    n = 50
    draws = uniform(0, 0, torch.arange(n), "test", ph.DRAWS)
    for channels in (1, 2, 5):
        x = noise(n, 6, channels)
        x[:, :, -1] = 0.0
        colours_only = Photometric(jitter=1, brightness=0, contrast=0, grey=1, blur=0)
        assert torch.equal(ph.photometric(x, draws, colours_only), x)
        brighter = ph.photometric(x, draws, Photometric(jitter=1, contrast=0, grey=1, blur=0.5))
        assert not torch.allclose(brighter, x) or channels == 1
        assert brighter[:, :, -1].abs().max() == 0
