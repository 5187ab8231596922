"""What computes a number, beside all that it is computed from: the code, torch, the devices."""

import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

ROOMS = ("data", "encoder", "evaluate", "run")
"""Where pictures are decoded and resampled, encoders built and loaded, numbers made."""


def computed_by(devices: Iterable[torch.device]) -> dict[str, Any]:
    """Plain values that differ wherever the same pictures and weights may give another number.

    How many devices of one model take part does not count, as features do not depend on it.
    """
    names = sorted({device_name(device) for device in devices})
    return dict(code=code_digest(), torch=str(torch.__version__), devices=names)


def device_name(device: torch.device) -> str:
    """The model of a GPU, as two of them round differently; else the kind of device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


@functools.cache
def code_digest(package: Path = Path(__file__).parents[2]) -> str:
    """Of every line of `ROOMS`: between two releases the version stays and the code does not."""
    digest = hashlib.sha256()
    for file in sorted(file for room in ROOMS for file in (package / room).rglob("*.py")):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(package).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()
