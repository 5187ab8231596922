"""Small shards for the tests, written with the tarfile module and not with ours."""

import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from PIL import Image


def png(value: int, height: int = 6, width: int = 8) -> bytes:
    """A picture that tells its number: red and green are its bytes."""
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[..., 0], pixels[..., 1], pixels[..., 2] = value % 256, value // 256, 200
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def number(pixels: np.ndarray) -> int:
    return int(pixels[0, 0, 0]) + 256 * int(pixels[0, 0, 1])


def tar(path: Path, members: Iterable[tuple[str, bytes]]) -> Path:
    with tarfile.open(path, "w") as file:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return path


def numbered_shards(folder: Path, counts: Iterable[int], labels: bool = True) -> Path:
    """`shard-0.tar`, ...: pictures 0, 1, 2, ... with label number % 3 in .cls and .json members."""
    folder.mkdir(parents=True, exist_ok=True)
    first = 0
    for shard, count in enumerate(counts):
        members = []
        for i in range(first, first + count):
            members.append((f"{i:05}.png", png(i)))
            if labels and i % 2:
                members.append((f"{i:05}.cls", str(i % 3).encode()))
            elif labels:
                members.append((f"{i:05}.json", json.dumps({"label": i % 3}).encode()))
        tar(folder / f"shard-{shard}.tar", members)
        first += count
    return folder
