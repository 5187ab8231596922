"""What can be chosen of an export or an embedding, by name; nothing heavy is imported for it."""

from typing import Literal

Format = Literal["timm", "hf", "onnx"]
Read = Literal["cls", "mean", "cls+mean"]
THRESHOLD = 0.99
"""The cosine from which two pictures are near-duplicates."""
