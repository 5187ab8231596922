"""TIFF files with more bands than Pillow can read, 8 or 16 bits each, interleaved or planar."""

import struct
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, TiffImagePlugin

from wessl.data.decoding.bad_pictures import BadPicture


@dataclass
class GreyTwin:
    """A many-band TIFF rewritten as a wider (or, if planar, taller) grey one.

    Pillow has no mode for five bands, but the bytes of W pixels of 5 bands are those of 5 W grey
    pixels: with a new directory at the end of the file its decompressors do all the work.
    """

    file: BytesIO
    height: int
    width: int
    samples: int
    bits: int
    planar: bool
    differenced: bool

    def read(self) -> NDArray[Any]:
        with Image.open(self.file) as image:
            values = np.asarray(image)
        if self.planar:
            return values.reshape(self.samples, self.height, self.width).transpose(1, 2, 0)
        values = values.reshape(self.height, self.width, self.samples)
        # The TIFF predictor stores differences to the left neighbour, wrapping around.
        return values.cumsum(axis=1, dtype=values.dtype) if self.differenced else values


def grey_twin(source: str | bytes) -> GreyTwin | None:
    """What to read instead, if this path or file is a TIFF with bands Pillow has no mode for."""
    if isinstance(source, str) and not source.lower().endswith((".tif", ".tiff")):
        return None
    with BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as file:
        head = file.read(8)
        if head[:4] not in (b"II*\0", b"MM\0*"):
            return None
        tags = TiffImagePlugin.ImageFileDirectory_v2(head)
        file.seek(tags.next)
        tags.load(file)
        samples = int(tags.get(277, 1))
        if samples == 1 or (samples <= 4 and tags.get(262) != 1):
            return None
        file.seek(0)
        return _rewrite(file.read(), tags, samples)


def _rewrite(data: bytes, tags: Any, samples: int) -> GreyTwin:
    width, height, bits = int(tags[256]), int(tags[257]), {int(b) for b in np.ravel(tags[258])}
    planar, tiled, differenced = tags.get(284, 1) == 2, 322 in tags, tags.get(317, 1) == 2
    rows = int(tags[323] if tiled else min(tags.get(278, height), height))
    if bits not in ({8}, {16}) or set(np.ravel(tags.get(339, 1)).tolist()) != {1}:
        raise BadPicture(f"{samples} bands of other than 8- or 16-bit unsigned integers")
    if (planar and height % rows) or (tiled and differenced and not planar):
        raise BadPicture(f"a layout of {samples} bands that is not supported: save as .npz")
    wide, tall = (1, samples) if planar else (samples, 1)
    grey = {256: [width * wide], 257: [height * tall], 258: [max(bits)], 259: [tags.get(259, 1)]}
    grey |= {262: [1], 277: [1], 317: [2 if differenced and planar else 1]}
    if tiled:
        grey |= {322: [int(tags[322]) * wide], 323: [rows], 324: tags[324], 325: tags[325]}
    else:
        grey |= {273: tags[273], 278: [rows], 279: tags[279]}
    order = "<" if data[:2] == b"II" else ">"
    data += b"\0" * (len(data) % 2)
    directory = struct.pack(order + "H", len(grey))
    overflow, overflow_at = b"", len(data) + 2 + 12 * len(grey) + 4
    for tag, values in sorted(grey.items()):
        packed = struct.pack(f"{order}{len(values)}L", *values)
        if len(values) > 1:
            packed, overflow = (
                struct.pack(order + "L", overflow_at + len(overflow)),
                overflow + packed,
            )
        directory += struct.pack(order + "HHL", tag, 4, len(values)) + packed
    whole = data[:4] + struct.pack(order + "L", len(data)) + data[8:] + directory + bytes(4)
    return GreyTwin(
        BytesIO(whole + overflow),
        height,
        width,
        samples,
        max(bits),
        planar,
        differenced and not planar,
    )
