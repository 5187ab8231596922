"""A trained encoder as others use it: pictures in, features out."""

import contextlib
import operator
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from PIL import Image
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.distributed import ProcessGroup

from wessl.config import EncoderConfig
from wessl.data.batch import Batch
from wessl.data.cache.cache import PictureCache
from wessl.data.decoding.bad_pictures import BadPicture
from wessl.data.decoding.decode import PixelFormat, decode, pixels_of, with_channels
from wessl.data.views.make import centre_crop
from wessl.errors import UserError
from wessl.evaluate.features.passes import EncoderPass, Progress
from wessl.evaluate.features.readings import Reading, possible_readings, read_tokens
from wessl.evaluate.settings import Precision
from wessl.run import Run, build_encoder, damage, read_weights
from wessl.settings import from_dict

LARGEST = 4096
"""Side of a picture that may be asked for: attention grows with its fourth power."""
Picture = str | Path | Image.Image | np.ndarray[Any, Any]


class TrainedEncoder(nn.Module):
    """A frozen encoder with the picture size and normalisation it was trained for."""

    def __init__(
        self, encoder: nn.Module, description: dict[str, Any], usual: dict[str, Any] | None = None
    ):
        super().__init__()
        self.encoder, self.description = encoder.eval().requires_grad_(False), description
        self.usual = description if usual is None else usual
        """Its description where it is shown pictures of its own size."""
        self.dim: int = encoder.dim  # type: ignore[assignment]
        self.patch_tokens: bool = encoder.patch_tokens  # type: ignore[assignment]
        self.eval()

    @property
    def resized_from(self) -> int | None:
        """Side of its own pictures, where it is shown others."""
        own: int = self.usual["image_size"]
        return None if own == self.description["image_size"] else own

    def forward(self, images: Tensor) -> Tensor:
        return self.encoder(images)

    def cls(self, images: Tensor) -> Tensor:
        return self.encoder.cls(images)  # type: ignore[operator]

    @property
    def device(self) -> torch.device:
        return next(self.encoder.parameters()).device

    def read(self, images: Tensor, readings: Sequence[Reading]) -> dict[Reading, Tensor]:
        """Each reading of prepared images ``(b, ch, h, w)``, in one pass through the encoder."""
        return read_tokens(self.encoder, images, readings)

    def prepare(self, batch: Batch) -> Tensor:
        """Short side resized, centre cropped, normalised: ``(b, ch, size, size)``."""
        d = self.description
        return centre_crop(batch, d["resize"], d["image_size"], d["mean"], d["std"])

    def at_size(self, image_size: int) -> "TrainedEncoder":
        """The same weights for pictures of another side, cut from as much more as before."""
        described, side = self.usual, whole_number(image_size)
        if side is None or not 1 <= side <= LARGEST:
            raise UserError(
                f"--image-size must be a whole number from 1 to {LARGEST:,}, not {image_size!r}"
            )
        if side == described["image_size"]:
            return self if self.resized_from is None else TrainedEncoder(self.encoder, described)
        encoder = described["encoder"]
        step = encoder["patch_size"] if encoder["kind"] == "vit" else 1
        if side % step:
            near = max(step, side // step * step)
            raise UserError(
                f"--image-size {side}: must be a multiple of {step}, the side of the "
                f"encoder's patches, such as {near} or {near + step}"
            )
        resize = round(side * described["resize"] / described["image_size"])
        changed = described | dict(image_size=side, resize=resize)
        return TrainedEncoder(self.encoder, changed, described)

    @torch.no_grad()
    def embed(
        self,
        images: Tensor | str | Path | Image.Image | Sequence[Picture],
        batch_size: int = 256,
    ) -> Tensor:
        """Features ``(n, dim)`` of a list of paths, PIL images, or uint8 arrays ``(h, w[, ch])``.

        An opened picture is taken as its file would be: turned upright, laid on white. A uint8
        tensor is ``(n, h, w, ch)``; a float tensor ``(n, ch, h, w)`` is taken as already prepared.
        """
        if isinstance(images, (str, Path, Image.Image)):
            images = [images]
        parts = []
        for start in range(0, len(images), batch_size):
            part = images[start : start + batch_size]
            if isinstance(part, Tensor) and part.is_floating_point():
                prepared = part.to(self.device)
            else:
                prepared = self.prepare(self._batch(part).map(lambda x: x.to(self.device)))
            parts.append(self.cls(prepared).float().cpu())
        return torch.cat(parts) if parts else torch.empty(0, self.dim)

    def _batch(self, pictures: Tensor | Sequence[Picture]) -> Batch:
        return Batch.collate([self._pixels(picture) for picture in pictures])

    def _pixels(self, picture: Tensor | Picture) -> np.ndarray[Any, Any]:
        channels = self.description["channels"]
        if isinstance(picture, (str, Path)):
            try:
                return decode(str(picture), PixelFormat(channels))
            except BadPicture as error:
                folder = "; list the files in it" if Path(picture).is_dir() else ""
                raise UserError(f"{picture}: {error}{folder}") from error
        if isinstance(picture, Image.Image) and channels in (1, 3):
            return pixels_of(picture, PixelFormat(channels))
        array = picture.cpu().numpy() if isinstance(picture, Tensor) else np.asarray(picture)
        if array.dtype != np.uint8 or array.ndim not in (2, 3):
            found = f"{array.dtype} {array.shape}"
            raise UserError(f"a picture must be uint8 (h, w) or (h, w, ch), got {found}")
        return with_channels(array if array.ndim == 3 else array[..., None], channels)


def readings_of(encoder: TrainedEncoder) -> tuple[Reading, ...]:
    """What ``extract`` can read from this encoder: one without patch tokens has only ``cls``."""
    return possible_readings(encoder.encoder)


def whole_number(value: Any) -> int | None:
    """Python's own for NumPy's too; None for what is no whole number.

    >>> whole_number(np.int64(3)), whole_number(3.0), whole_number(True), whole_number("3")
    (3, None, None, None)
    """
    try:
        return None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        return None


def load(
    path: str | Path,
    device: str | torch.device = "cpu",
    network: Literal["teacher", "student"] = "teacher",
    image_size: int | None = None,
) -> TrainedEncoder:
    """The encoder of a run folder, of a weights file, or of a folder with one as exports are.

    A run's encoder is the teacher's, as in the paper; the student's lies in its checkpoints. It is
    shown pictures of the size it was trained for, or of another ``image_size``.

    ::

        encoder = wessl.load("runs/digits")
        features = encoder.embed(["a.jpg", "b.jpg"])     # (2, dim)
    """
    path = Path(path)
    if network not in ("teacher", "student"):
        raise UserError(f"network must be teacher or student, not {network!r}")
    with undamaged(path):
        if network == "student":
            weights, description = _read_student(path)
        else:
            weights, description = _read_folder(path) if path.is_dir() else read_weights(path)
        config = from_dict(EncoderConfig, description["encoder"])
        encoder = build_encoder(config, description["channels"])
        encoder.load_state_dict(weights)
    trained = TrainedEncoder(encoder.to(device), description)
    if image_size is None:
        return trained
    try:
        return trained.at_size(image_size)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


@contextlib.contextmanager
def undamaged(path: Path) -> Iterator[None]:
    """Whatever a broken file makes of being read, said in words with what to do."""
    try:
        yield
    except UserError:
        raise
    except (SafetensorError, OSError, ValueError, LookupError, TypeError, RuntimeError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        remedy = "run `wessl pretrain` on it again, which writes the encoder anew"
        if not path.is_dir():
            remedy = "copy it once more from where it came"
        raise UserError(f"{path}: its encoder is damaged ({reason}); {remedy}") from error


def _read_folder(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A run's encoder, or the weights of an export to timm or Hugging Face."""
    run, files = Run(path), sorted(path.glob("*.safetensors"))
    if len(files) != 1 or files[0].name == "encoder.safetensors":
        return run.load_encoder()
    return read_weights(files[0])


def _read_student(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """From a run's newest whole checkpoint, or from a file that holds both networks."""
    if path.is_dir():
        found = sorted(Run(path).checkpoints.glob("step-*.pt"), reverse=True)
        newest = next((file for file in found if damage(file) is None), None)
        if newest is None:
            raise UserError(
                f"{path} has no whole checkpoint, and its student is nowhere else; "
                "ask for the teacher"
            )
        return read_weights(newest, "student")
    weights, description = read_weights(path, "student")
    others = [why for why in description["left_out"].values() if why.startswith("another network")]
    if not others:
        raise UserError(f"{path} holds one network, not a teacher and a student; give a run folder")
    return weights, description


def extract(
    encoder: TrainedEncoder,
    cache: PictureCache,
    indices: Tensor | None = None,
    batch_size: int = 256,
    reading: Reading = "cls",
    precision: Precision = "auto",
    progress: Progress | None = None,
    devices: Sequence[str | torch.device] | None = None,
) -> Tensor:
    """Features ``(n, width)`` of the pictures of a cache, all or those asked for, on the CPU.

    Of centre crops, in float32. ``devices`` shares the pictures out over several GPUs; otherwise
    they go through the encoder where it is. ``progress(done, total)`` is called after each batch.
    """
    found = extract_all(
        encoder, cache, (reading,), indices, batch_size, precision, progress, devices
    )
    return found[reading]


def extract_all(
    encoder: TrainedEncoder,
    cache: PictureCache,
    readings: Sequence[Reading],
    indices: Tensor | None = None,
    batch_size: int = 256,
    precision: Precision = "auto",
    progress: Progress | None = None,
    devices: Sequence[str | torch.device] | None = None,
    group: ProcessGroup | None = None,
) -> dict[Reading, Tensor]:
    """As ``extract``, for several readings of one pass over the pictures.

    The processes of a ``group`` share the pictures out; all of them get all features.
    """
    runner = EncoderPass(encoder, readings, precision, devices, batch_size, group)
    chosen = torch.arange(len(cache)) if indices is None else indices.cpu()
    features = runner.allocate(len(chosen))
    runner.run(cache, chosen, centre_view, features, progress)
    return features


def centre_view(encoder: TrainedEncoder, batch: Batch, _: Tensor) -> Tensor:
    """The view every protocol tests on."""
    return encoder.prepare(batch)
