"""A picture file to uint8 height x width x channels.

Every picture of one source comes out with the same number of channels and the same scale:

- transparency is laid on white, EXIF orientation is applied, other colour spaces become RGB;
- 16-bit values are divided by the source's *white level*, the smallest of 255, 1023, 4095, 16383
  and 65535 that holds the largest value of up to 64 sampled pictures: 12-bit sensors do not come
  out black, full-range files get the exact /257, and all pictures keep one common scale;
- a TIFF keeps more than three bands, stored interleaved, planar or as same-sized grey pages.
"""

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from wessl.data.decoding.bad_pictures import BadPicture, undecodable
from wessl.data.decoding.jpeg import pixels_of_jpeg
from wessl.data.decoding.pixels import Pixels, as_array, shrink, with_channels
from wessl.data.decoding.tiff import grey_twin
from wessl.data.forms import ENDINGS

__all__ = [
    "ENDINGS",
    "File",
    "PixelFormat",
    "Pixels",
    "decode",
    "picture_size",
    "pixels_of",
    "shrink",
    "sniff",
    "with_channels",
]

File = str | bytes
"""A path, or all bytes of a file."""
_WHITE_LEVELS = (255, 1023, 4095, 16383, 65535)
ORIENTATION = 0x0112
"""EXIF's tag for it."""
LYING = (5, 6, 7, 8)
"""Its values for pictures that are turned by a quarter."""
_DEEP_MODES = ("I;16", "I;16L", "I;16B", "I;16N", "I")


@dataclass(frozen=True)
class PixelFormat:
    """What every picture of a source is brought to."""

    channels: int
    white: int = 65535


def decode(file: File, pixel_format: PixelFormat, short_side: int | None = None) -> Pixels:
    """Read one file; `short_side` shrinks it (never enlarges), using JPEG's cheap scaled decoding.

    ::

        decode("cat.jpg", PixelFormat(channels=3), short_side=256).shape  # (256, 341, 3)
    """
    try:
        return shrink(_read(file, pixel_format, short_side), short_side)
    except (MemoryError, BadPicture):
        raise
    except Exception as error:  # a decoder may raise anything at all on a broken file
        raise undecodable(error, _is_empty(file)) from error


def sniff(files: Iterable[File], channels: int | None = None) -> PixelFormat:
    """Settle a source's format from the headers of the given sample; unreadable files are left out.

    Only grey pictures: 1 channel. Grey and colour: 3. Other counts: the most frequent one.
    """
    counts: Counter[int] = Counter()
    deep: list[File] = []
    for file in files:
        try:
            bands, is_deep = _header(file)
        except Exception:  # decoding will name this file and its reason
            continue
        counts[bands] += 1
        if is_deep:
            deep.append(file)
    if channels is None:
        plain = not counts or set(counts) <= {1, 3}
        channels = (1 if set(counts) == {1} else 3) if plain else counts.most_common(1)[0][0]
    return PixelFormat(channels, _white_level(deep[:: max(1, len(deep) // 64)]))


def _white_level(files: Sequence[File]) -> int:
    largest = 0
    for file in files:
        try:
            largest = max(largest, int(_deep_pixels(file).max()))
        except Exception:  # as above
            continue
    return next((w for w in _WHITE_LEVELS if w >= largest > 0), _WHITE_LEVELS[-1])


def _opened(file: File) -> str | BytesIO:
    return BytesIO(file) if isinstance(file, bytes) else file


def _is_empty(file: File) -> bool:
    return (
        not file if isinstance(file, bytes) else os.path.isfile(file) and not os.stat(file).st_size
    )


def _header(file: File) -> tuple[int, bool]:
    """The number of channels this file asks for, and whether it holds more than 8 bits."""
    twin = grey_twin(file)
    if twin is not None:
        return twin.samples, twin.bits == 16
    with Image.open(_opened(file)) as image:
        if (pages := _grey_pages(image)) > 1:
            return pages, image.mode in _DEEP_MODES
        grey = image.mode in ("1", "L", "LA", "F", *_DEEP_MODES)
        if image.mode == "P" and image.palette is not None:
            # Asked of the picture: the palette itself is raw in TIFF, BMP, and Pillow before 13.
            colours = np.reshape(image.getpalette() or [], (-1, 3))
            grey = bool((colours == colours[:, :1]).all())
        return (1 if grey else 3), image.mode in _DEEP_MODES


def _deep_pixels(file: File) -> NDArray[Any]:
    twin = grey_twin(file)
    if twin is not None:
        return twin.read()
    with Image.open(_opened(file)) as image:
        return _stacked_pages(image, _grey_pages(image))


def _read(file: File, pixel_format: PixelFormat, short_side: int | None) -> Pixels:
    channels = pixel_format.channels
    twin = grey_twin(file)
    if twin is not None:
        bands = twin.read()
        return with_channels(_to_eight_bits(bands, pixel_format.white), channels)
    with Image.open(_opened(file)) as image:
        if short_side is not None and image.format == "JPEG":
            # Scaled decoding averages 2x2, 4x4 or 8x8 blocks; twice the size leaves the last
            # halving to the bicubic filter, which hides the blocks.
            image.draft(None, (2 * short_side, 2 * short_side))
        if channels != 1 and ((pages := _grey_pages(image)) == channels or channels != 3):
            bands = _to_eight_bits(_stacked_pages(image, pages), pixel_format.white)
            return with_channels(bands, channels)
        return pixels_of(image, pixel_format)


def pixels_of(image: Image.Image, pixel_format: PixelFormat) -> Pixels:
    """An opened picture as `decode` gives its file, at full size."""
    channels = pixel_format.channels
    turned = image.getexif().get(ORIENTATION, 1) != 1
    if channels == 3 and not turned and (found := pixels_of_jpeg(image)) is not None:
        return found
    upright = ImageOps.exif_transpose(image) if turned else image
    if upright.mode in ("F", *_DEEP_MODES):
        grey = _to_eight_bits(np.asarray(upright), pixel_format.white)
        return with_channels(grey[:, :, None], channels)
    if upright.has_transparency_data:
        upright = upright.convert("RGBA")
        paper = Image.new("RGBA", upright.size, "white")
        upright = Image.alpha_composite(paper, upright)
    wanted = "L" if channels == 1 else "RGB"
    return as_array(upright if upright.mode == wanted else upright.convert(wanted))


def _stacked_pages(image: Image.Image, pages: int) -> NDArray[Any]:
    stack = []
    for page in range(pages):
        if pages > 1:
            image.seek(page)
        stack.append(np.atleast_3d(np.asarray(image)))
    return np.concatenate(stack, axis=2)


def _grey_pages(image: Image.Image) -> int:
    """How many pages a TIFF has if they can be channels: all grey, of one size and depth."""
    pages = getattr(image, "n_frames", 1) if image.format == "TIFF" else 1
    kinds = set()
    if pages == 1:
        return 1
    for page in range(pages):
        image.seek(page)
        kinds.add((image.size, image.mode))
    image.seek(0)
    grey = len(kinds) == 1 and image.mode in ("L", *_DEEP_MODES)
    return pages if grey else 1


def _to_eight_bits(values: NDArray[Any], white: int) -> Pixels:
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind == "f":
        if not (values.min() >= 0 and values.max() <= 1):
            raise BadPicture("holds floating-point values outside 0..1")
        white = 1
    scaled = values.astype(np.float32) * np.float32(255 / white)
    return np.clip(np.rint(scaled), 0, 255).astype(np.uint8)


def picture_size(file: File) -> tuple[str, int, int]:
    """Pillow's name of the format, height and width when upright, from the header alone."""
    try:
        if (twin := grey_twin(file)) is not None:
            return "TIFF", twin.height, twin.width
        with Image.open(_opened(file)) as image:
            kind = "JPEG" if image.format == "MPO" else str(image.format)
            # Without EXIF in its header, Pillow would read a whole PNG to find some.
            told = kind == "TIFF" or "exif" in image.info
            lying = told and image.getexif().get(ORIENTATION, 1) in LYING
            return (kind, *(image.size if lying else image.size[::-1]))
    except Exception as error:  # as in `decode`
        raise undecodable(error, _is_empty(file)) from error
