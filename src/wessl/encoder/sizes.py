"""The transformers' sizes, without torch, for all that estimate."""

SIZES = {  # dim, depth, heads
    "T": (192, 12, 3),
    "S": (384, 12, 6),
    "B": (768, 12, 12),
    "L": (1024, 24, 16),
}
