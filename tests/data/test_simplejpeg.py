"""With simplejpeg or without, pixels are Pillow's, and what is wrong with a file is told alike."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image, ImageCms

from wessl.data.decoding import jpeg
from wessl.data.decoding.bad_pictures import BadPicture
from wessl.data.decoding.decode import ORIENTATION, PixelFormat, decode

simplejpeg = pytest.importorskip("simplejpeg")
COLOUR, GREY = PixelFormat(3), PixelFormat(1)


def picture(width: int, height: int, mode: str = "RGB") -> Image.Image:
    noise = np.random.default_rng(width * height).integers(
        0, 256, (height // 6 + 1, width // 6 + 1, 3), dtype=np.uint8
    )
    return Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC).convert(mode)


def saved(image: Image.Image, **options: object) -> bytes:
    file = BytesIO()
    image.save(file, "JPEG", **options)
    return file.getvalue()


def turned(orientation: int) -> bytes:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    return saved(picture(40, 30), exif=exif)


@pytest.fixture
def decoded(monkeypatch):
    """How often simplejpeg decoded a file."""
    calls = []

    def counting(*arguments, **settings):
        calls.append(arguments)
        return simplejpeg.decode_jpeg(*arguments, **settings)

    monkeypatch.setattr(jpeg, "decoder", lambda: counting)
    return calls


@pytest.mark.parametrize("size", [(1, 1), (17, 9), (500, 375), (1025, 1023), (300, 1301)])
@pytest.mark.parametrize("subsampling", ["4:4:4", "4:2:2", "4:2:0"])
@pytest.mark.parametrize("progressive", [False, True])
def test_a_colour_jpeg_has_pillows_pixels(size, subsampling, progressive, decoded):
    file = saved(picture(*size), subsampling=subsampling, progressive=progressive)
    with Image.open(BytesIO(file)) as image:
        expected = np.asarray(image)
    assert (decode(file, COLOUR) == expected).all()
    assert len(decoded) == 1


@pytest.mark.parametrize("size", [(600, 500), (1030, 2047), (2048, 2048)])
@pytest.mark.parametrize("short_side", [64, 100, 256])
def test_scaled_decoding_too(size, short_side, decoded, monkeypatch):
    file = saved(picture(*size))
    fast = decode(file, COLOUR, short_side)
    assert len(decoded) == 1
    monkeypatch.setattr(jpeg, "decoder", lambda: None)
    assert (fast == decode(file, COLOUR, short_side)).all()


def test_a_path_is_read_as_its_bytes_are(tmp_path, decoded):
    file = saved(picture(50, 40))
    (tmp_path / "a.jpg").write_bytes(file)
    assert (decode(str(tmp_path / "a.jpg"), COLOUR) == decode(file, COLOUR)).all()
    assert len(decoded) == 2


UNUSUAL = {
    "grey": saved(picture(40, 30, "L")),
    "four inks": saved(picture(40, 30, "CMYK")),
    "stored as red, green and blue": saved(picture(40, 30), keep_rgb=True),
    "with a profile": saved(
        picture(40, 30),
        icc_profile=ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes(),
    ),
    "upright by its EXIF": turned(1),
    "turned": turned(6),
    "mirrored": turned(2),
}


@pytest.mark.parametrize("file", UNUSUAL.values(), ids=UNUSUAL)
@pytest.mark.parametrize("pixel_format", [COLOUR, GREY], ids=["colour", "grey"])
def test_unusual_files_are_as_without_it(file, pixel_format, monkeypatch):
    found = decode(file, pixel_format, 20)
    monkeypatch.setattr(jpeg, "decoder", lambda: None)
    assert (found == decode(file, pixel_format, 20)).all()


def broken(how: str) -> bytes:
    whole = saved(picture(200, 150))
    middle = len(whole) // 2
    return {
        "cut off": whole[:middle],
        "cut off in its header": whole[:100],
        "zeros in the middle": whole[:middle] + bytes(60) + whole[middle + 60 :],
        "another file at its end": whole + whole,
        "no end": whole[:-2],
    }[how]


def told(file: bytes) -> object:
    try:
        return decode(file, COLOUR).tobytes()
    except BadPicture as error:
        return str(error)


@pytest.mark.parametrize(
    "how",
    [
        "cut off",
        "cut off in its header",
        "zeros in the middle",
        "another file at its end",
        "no end",
    ],
)
def test_damage_is_told_as_without_it(how, monkeypatch):
    file = broken(how)
    found = told(file)
    monkeypatch.setattr(jpeg, "decoder", lambda: None)
    assert found == told(file)
