"""The bytes under which a picture goes into a shard: its own where it is small enough already."""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO

import numpy as np
from PIL import Image

from wessl.data.decoding.bad_pictures import BadPicture
from wessl.data.decoding.decode import decode, picture_size
from wessl.data.decoding.pixels import Pixels, as_image
from wessl.data.sources.source import Source

ENDINGS = {"JPEG": ".jpg", "PNG": ".png", "WEBP": ".webp", "TIFF": ".tif", "BMP": ".bmp"}
_BY_NUMBER = tuple(ENDINGS.values())


@dataclass
class Encoder:
    """Encodes pictures where a source would decode them, so that worker processes can do it."""

    source: Source
    quality: int

    def __post_init__(self) -> None:
        self.parallel, self.ahead = self.source.parallel, self.source.ahead

    def __len__(self) -> int:
        return len(self.source)

    def size(self, index: int) -> tuple[int, int]:
        return self.source.size(index)

    def prefetch(self, indices: Sequence[int]) -> None:
        self.source.prefetch(indices)

    def read(self, index: int, short_side: int | None = None) -> Pixels:
        """Bytes that were decoded to try them, after the number of their ending."""
        file, ending = encode(self.source, index, short_side, self.quality)
        number = _BY_NUMBER.index(ending).to_bytes()
        return np.frombuffer(number + file, np.uint8)


def split_off_ending(encoded: Pixels) -> tuple[bytes, str]:
    """What `Encoder.read` put together."""
    return encoded[1:].tobytes(), _BY_NUMBER[int(encoded[0])]


def encode(source: Source, index: int, short_side: int | None, quality: int) -> tuple[bytes, str]:
    """A file and its ending: shrunk JPEG and WebP become JPEG, all else stays without loss."""
    file = source.encoded(index)
    if file is None:
        return _written(source.read(index, short_side), "PNG", quality)
    kind, height, width = picture_size(file)
    pixels = decode(file, source.pixel_format, short_side)
    small = short_side is None or min(height, width) <= short_side
    if small and kind in ENDINGS:
        return file, ENDINGS[kind]
    new, ending = _written(pixels, "JPEG" if kind in ("JPEG", "WEBP") else "PNG", quality)
    if decode(new, source.pixel_format).shape != pixels.shape:
        raise BadPicture("comes out with another shape when it is written again")
    return new, ending


def _written(pixels: Pixels, kind: str, quality: int) -> tuple[bytes, str]:
    file = BytesIO()
    if pixels.shape[2] in (1, 3):
        options = dict(quality=quality, optimize=True) if kind == "JPEG" else {}
        as_image(pixels).save(file, kind, **options)
        return file.getvalue(), ENDINGS[kind]
    # More bands than any format of pictures knows: as many grey pages.
    first, *others = (
        Image.fromarray(np.ascontiguousarray(band)) for band in np.moveaxis(pixels, 2, 0)
    )
    first.save(file, "TIFF", save_all=True, append_images=others, compression="tiff_deflate")
    return file.getvalue(), ENDINGS["TIFF"]
