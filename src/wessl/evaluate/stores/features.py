"""Features kept in the run folder, so that the next protocol does not compute them again.

A file's name is a hash of all that makes the features: the encoder's tensors and architecture, the
decoded pictures, the transform (resize, crop, normalisation, reading, precision), and what computes
them. Files carry a checksum; a damaged one is computed and written again.
"""

import hashlib
import json
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from torch.distributed import ProcessGroup

from wessl.data.cache.cache import PictureCache
from wessl.data.cache.digest import pictures_digest
from wessl.evaluate.features.passes import Progress, place_in, settle_precision
from wessl.evaluate.features.readings import TOKENS, Reading
from wessl.evaluate.features.trained_encoder import TrainedEncoder, extract_all
from wessl.evaluate.settings import Precision
from wessl.evaluate.stores.computed_by import computed_by
from wessl.evaluate.stores.home import open_home
from wessl.evaluate.stores.outdated import DAMAGED, about, drop_outdated, read_about
from wessl.files import sha256_of, write_whole

_FORMAT = 1


class FeatureStore:
    """Features of the run folder `folder`, in `folder/features`; `None` keeps nothing.

    The processes of a `group` compute them together; the first of them writes. With `again` only
    what this very store wrote is read.

    ::

        store = FeatureStore(run.path)
        features = store.features(encoder, cache)     # computed
        features = store.features(encoder, cache)     # read
    """

    def __init__(self, folder: Path | None, group: ProcessGroup | None = None, again: bool = False):
        self.home = open_home(folder, group)
        self.group, self.again, self.opened = group, again, time.time()
        self._written: set[str] = set()

    def features(
        self,
        encoder: TrainedEncoder,
        cache: PictureCache,
        reading: Reading = "cls",
        batch_size: int = 256,
        precision: Precision = "auto",
        progress: Progress | None = None,
        devices: Sequence[str | torch.device] | None = None,
    ) -> Tensor:
        """What `extract` gives for all pictures of the cache."""
        found = self.features_all(
            encoder, cache, (reading,), batch_size, precision, progress, devices
        )
        return found[reading]

    def features_all(
        self,
        encoder: TrainedEncoder,
        cache: PictureCache,
        readings: Sequence[Reading],
        batch_size: int = 256,
        precision: Precision = "auto",
        progress: Progress | None = None,
        devices: Sequence[str | torch.device] | None = None,
    ) -> dict[Reading, Tensor]:
        """Several readings; those that are not kept yet are computed in one pass."""
        places = [torch.device(d) for d in devices] if devices else [encoder.device]
        precision = settle_precision(precision, places)
        names, made = dict.fromkeys(readings, ""), dict[Reading, dict[str, Any]]()
        if self.home is not None:
            digests = weights_digest(encoder), pictures_digest(cache)
            made = {r: features_made_of(encoder, *digests, r, precision, places) for r in readings}
            names = {r: _name(made[r]) for r in readings}
        found = {
            r: kept
            for r, name in names.items()
            if (kept := self._read(name, (len(cache), TOKENS[r] * encoder.dim))) is not None
        }
        if missing := self._missed([r not in found for r in readings], readings):
            fresh = extract_all(
                encoder, cache, missing, None, batch_size, precision, progress, devices, self.group
            )
            for reading, features in fresh.items():
                if self.home is not None:
                    self._write(self.home, names[reading], features, about(encoder, made[reading]))
            if self.again and self.group is not None:
                # All wait for the first, or would read what lay there before it wrote.
                dist.all_reduce(torch.zeros(1), group=self.group)
            found |= fresh
        return {reading: found[reading] for reading in readings}

    def kept(
        self,
        encoder: TrainedEncoder,
        cache: PictureCache,
        precision: Precision,
        devices: Sequence[torch.device],
    ) -> Tensor | None:
        """The [CLS] features of all pictures, if they are there; nothing is computed."""
        if self.home is None:
            return None
        settled = settle_precision(precision, devices)
        digests = weights_digest(encoder), pictures_digest(cache)
        name = _name(features_made_of(encoder, *digests, "cls", settled, devices))
        return self._read(name, (len(cache), TOKENS["cls"] * encoder.dim))

    def _missed(self, flags: list[bool], readings: Sequence[Reading]) -> list[Reading]:
        """What any process has not found: another may have written it a moment ago."""
        if self.group is not None:
            missed = torch.tensor(flags, dtype=torch.uint8)
            dist.all_reduce(missed, dist.ReduceOp.MAX, self.group)
            flags = missed.bool().tolist()
        return [reading for reading, missed in zip(readings, flags, strict=True) if missed]

    def _read(self, name: str, shape: tuple[int, int]) -> Tensor | None:
        if self.home is None or (self.again and name not in self._written):
            return None
        try:
            path = self.home / f"{name}.safetensors"
            recorded = read_about(path)["sha256"]
            with safe_open(path, "pt") as file:
                features = file.get_tensor("features")
        except DAMAGED:  # or absent
            return None
        whole = features.shape == shape and recorded == _sha256(features)
        return features if whole else None

    def _write(self, home: Path, name: str, features: Tensor, told: dict[str, str]) -> None:
        if place_in(self.group)[0] > 0:
            self._written.add(name)
            return
        path = home / f"{name}.safetensors"
        # In one value, as safetensors has no order for several.
        metadata = {"about": json.dumps(told | {"sha256": _sha256(features)})}
        try:
            home.mkdir(parents=True, exist_ok=True)
            write_whole(path, lambda file: save_file({"features": features}, file, metadata))
            self._written.add(name)
            drop_outdated(path, self.opened)
        except OSError as error:
            warnings.warn(
                f"features are not kept and will be computed again: {error}", stacklevel=4
            )


def features_made_of(
    encoder: TrainedEncoder,
    weights: str,
    pictures: str,
    reading: Reading,
    precision: str,
    devices: Sequence[torch.device],
) -> dict[str, Any]:
    """All that makes features; `weights` and `pictures` are digests."""
    described = encoder.description
    return dict(
        format=_FORMAT,
        weights=weights,
        pictures=pictures,
        transform={name: described[name] for name in ("resize", "image_size", "mean", "std")},
        crop="centre, bicubic",
        reading=reading,
        precision=precision,
        computed_by=computed_by(devices),
    )


def _name(made_of: dict[str, Any]) -> str:
    return sha256_of(made_of)[:32]


def weights_digest(encoder: TrainedEncoder) -> str:
    """Of the architecture and every tensor; 64 hexadecimal digits."""
    built = dict(encoder.description["encoder"], drop_path=0.0)
    built.pop("start", None)  # like drop-path, of the training alone
    digest = hashlib.sha256(json.dumps(built, sort_keys=True).encode())
    for name, tensor in sorted(encoder.encoder.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _sha256(features: Tensor) -> str:
    return hashlib.sha256(_bytes(features)).hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
