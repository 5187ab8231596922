"""What can be chosen of an export or an embedding, by name; nothing heavy is imported for it."""

from typing import Literal

from wessl.errors import UserError

Format = Literal["timm", "hf", "onnx"]
Read = Literal["cls", "mean", "cls+mean"]
THRESHOLD = 0.99
"""The cosine from which two pictures are near-duplicates."""


def check_threshold(threshold: float) -> None:
    if not 0 < threshold <= 1:
        raise UserError(f"--duplicates must be a cosine above 0 and up to 1, not {threshold}")
