"""Small photographs, small networks and the command line, for the tests of pre-training."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

QUICK: dict[str, Any] = dict(epochs=1, quiet=True, device="cpu")
DIGITS = ("pretrain", "builtin://digits/test", "--heads.count", "2", "--out")


def photographs(folder: Path, n=24, size=(40, 48), classes=("cat", "dog")) -> Path:
    rng = np.random.default_rng(0)
    for i in range(n):
        place = folder / classes[i % len(classes)]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (*size, 3), dtype=np.uint8)).save(place / f"{i}.png")
    return folder


def tiny(**more: Any) -> dict[str, Any]:
    """A transformer small enough for a test, on top of the automatic recipe."""
    small = {"encoder.dim": 24, "encoder.depth": 2, "encoder.heads": 2, "hidden_dim": 16}
    return QUICK | small | {"heads.count": 2, "codes": 8, "batch_size": 8} | more


def start(*words: object, **more: Any) -> "subprocess.Popen[str]":
    """The command line in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "wessl", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
        **more,
    )


def command(*words: object, **more: Any) -> tuple[int, str, str]:
    process = start(*words, **more)
    out, err = process.communicate()
    return process.returncode, out, err
