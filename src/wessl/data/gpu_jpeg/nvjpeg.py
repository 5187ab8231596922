"""JPEGs decoded by the GPU, through torchvision, which is imported only when it is asked for.

nvJPEG rounds as it likes and blows colours up to full size more plainly than Pillow: pixels differ
by one or two levels on average. So nobody gets it unasked, and a cache remembers who decoded it.
"""

from functools import cache
from io import BytesIO
from typing import Protocol

import torch
from PIL import Image
from torch import Tensor

from wessl.errors import UserError, pip_install


class BatchDecoder(Protocol):
    """What decodes whole JPEG files, many at a time."""

    name: str
    """By which a cache remembers its pixels."""
    device: torch.device

    def __call__(self, files: list[bytes]) -> list[Tensor]:
        """uint8 (3, height, width) each, not turned; RuntimeError if it fails at any of them."""
        ...


class NvJpeg:
    """nvJPEG on a CUDA device, tried once when it is made.

    ::

        cache = build_cache(open_source("photos/"), jpeg=NvJpeg("cuda"))
    """

    name = "gpu"

    def __init__(self, device: str | torch.device = "cuda"):
        device = torch.device(device)
        if not torch.cuda.is_available():
            raise UserError("--jpeg gpu: no GPU was found; leave --jpeg out")
        if device.type != "cuda":
            raise UserError(f"--jpeg gpu: {device} is no GPU; use --device cuda, or --jpeg cpu")
        try:
            from torchvision.io import ImageReadMode, decode_jpeg
        except ImportError as error:
            raise UserError(
                f"--jpeg gpu needs torchvision ({error}): "
                + pip_install("torchvision")
                + ", the version that belongs to this torch; or use --jpeg cpu"
            ) from error
        except Exception as error:  # one made for another torch may fail with anything
            raise _useless(error) from error
        here = torch.cuda.current_device() if device.index is None else device.index
        self.device = torch.device("cuda", here)
        self._decode, self._mode = decode_jpeg, ImageReadMode.RGB
        # torchvision lets nvJPEG write at once into memory that work queued in this stream may
        # still read (pytorch/vision#9606): a stream of its own, empty before every call, is safe.
        self._stream = torch.cuda.Stream(self.device)
        try:
            self([sound_jpeg()])
        except Exception as error:  # without nvJPEG, or too old for lists of files
            raise _useless(error) from error

    def __call__(self, files: list[bytes]) -> list[Tensor]:
        # One tensor cut into files, because every call of torch gives Python's lock away, and the
        # threads that read are quick to take it. Of memory it cannot write to, torch would warn.
        joined = torch.frombuffer(bytearray().join(files), dtype=torch.uint8)
        held = joined.split([len(file) for file in files])
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            self._stream.synchronize()
            decoded: list[Tensor] = self._decode(list(held), mode=self._mode, device=self.device)
            self._stream.synchronize()  # what was decoded may be read in any stream
        return decoded


@cache
def sound_jpeg() -> bytes:
    """A file that every decoder takes."""
    file = BytesIO()
    Image.linear_gradient("L").convert("RGB").save(file, "JPEG")
    return file.getvalue()


def _useless(error: Exception) -> UserError:
    return UserError(
        f"--jpeg gpu: this torchvision does not decode JPEGs on the GPU ({error}); install the "
        "CUDA build that belongs to this torch, or use --jpeg cpu"
    )
