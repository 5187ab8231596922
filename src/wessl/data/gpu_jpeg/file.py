"""Which files a GPU may decode, and how large and which way up they are."""

from io import BytesIO
from typing import NamedTuple

from PIL import Image, ImageFile

from wessl.data.decoding.decode import LYING, ORIENTATION

START, END = b"\xff\xd8\xff", b"\xff\xd9"
MOST_PIXELS = 1 << 25
"""Of one picture; larger ones would take too much of a GPU's memory."""
_RGB = tuple(b"RGB")


class Jpeg(NamedTuple):
    """All bytes of a file, with height and width as they are stored, before it is turned."""

    file: bytes
    height: int
    width: int
    orientation: int


def as_jpeg(file: bytes) -> Jpeg | None:
    """A grey or YCbCr JPEG that is all there; None for what had better go to Pillow."""
    if not file.startswith(START):
        return None
    try:
        with Image.open(BytesIO(file), formats=("JPEG",)) as image:
            width, height = image.size
            if image.mode not in ("L", "RGB") or width * height > MOST_PIXELS or _is_rgb(image):
                return None
            # A GPU's decoder fills up what was cut off, without a word. Cameras write more after
            # the end, and their thumbnails, which have one too, before the place Pillow is at.
            if file.rfind(END, _read_so_far(image) or len(file) - 2) < 0:
                return None
            # Without one of these in the header there is nothing to turn it.
            told = "exif" in image.info or "xmp" in image.info
            return Jpeg(file, height, width, image.getexif().get(ORIENTATION, 1) if told else 1)
    except Exception:  # Pillow will tell what is wrong with it
        return None


def _read_so_far(image: Image.Image) -> int:
    """Bytes of the header; 0 where several pictures are in the file, and Pillow went back."""
    return image.fp.tell() if isinstance(image, ImageFile.ImageFile) and image.fp else 0


def _is_rgb(image: Image.Image) -> bool:
    """Stored as red, green and blue, as libjpeg finds out; a GPU's decoder takes it for YCbCr."""
    if "adobe_transform" in image.info:
        return image.mode == "RGB" and image.info["adobe_transform"] == 0
    names = tuple(layer[0] for layer in getattr(image, "layer", ()))
    return "jfif" not in image.info and names == _RGB


def upright_size(jpeg: Jpeg) -> tuple[int, int]:
    """Height and width once it is turned."""
    lying = jpeg.orientation in LYING
    return (jpeg.width, jpeg.height) if lying else (jpeg.height, jpeg.width)
