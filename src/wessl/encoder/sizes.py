"""The encoders' sizes, without torch, for all that estimate."""

SIZES = {  # dim, depth, heads
    "T": (192, 12, 3),
    "S": (384, 12, 6),
    "B": (768, 12, 12),
    "L": (1024, 24, 16),
}
GRID = 4
"""Cells a side that a convolutional encoder reads its picture from."""
