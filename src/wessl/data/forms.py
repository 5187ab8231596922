"""The forms that DATA may take, in words, and the endings of picture files."""

FORMS = (
    "a folder of pictures, a text file of paths, an .npz file with `images` (and `labels`), "
    "tar shards ('shards/*.tar', https://host/shard-{000..099}.tar), hf://name[:split], "
    "builtin://digits, builtin://digits/train or builtin://digits/test"
)
ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp")
UNREAD = (".heic", ".heif", ".avif", ".jxl", ".gif", ".dng", ".cr2", ".cr3", ".nef", ".arw")
"""Of pictures too, but not read here: whoever has such files should hear of it."""
