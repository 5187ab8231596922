"""Fingerprints of the decoded pictures of a cache, which do not depend on where they came from.

`pictures_digest` is of their sizes, order and every byte: no change of a pixel is missed. The bytes
are read once, and the result is kept in the cache's own folder. `sizes_digest` is of all sizes and
the bytes of 64 pictures: a moment, and enough to know a training's pictures again. Without a cache
there is `Pictures.sample_digest`, of the number of pictures and 64 of them.
"""

import contextlib
import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor

import torch

from wessl.data.cache.cache import PictureCache

_STRIPE = 1 << 26


def pictures_digest(cache: PictureCache) -> str:
    """64 hexadecimal digits; labels and names do not count.

    >>> from tempfile import TemporaryDirectory
    >>> from wessl.data.cache.build import build_cache
    >>> from wessl.data.sources.open import open_source
    >>> with TemporaryDirectory() as folder:
    ...     cache = build_cache(open_source("builtin://digits"), directory=folder)
    ...     len(pictures_digest(cache)), pictures_digest(cache) == pictures_digest(cache)
    (64, True)
    """
    kept, mark = cache.home / "digest.json", _mark(cache)
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(kept.read_text())
        if mark is not None and known["mark"] == mark:
            return str(known["sha256"])
    digest = _of_bytes(cache)
    if mark is not None:
        # Where the cache may only be read, the bytes are read again next time.
        with contextlib.suppress(OSError):
            part = kept.with_name(f".{kept.name}.{os.getpid()}.tmp")
            part.write_text(json.dumps(dict(mark=mark, sha256=digest)))
            part.replace(kept)
    return digest


def sizes_digest(cache: PictureCache) -> str:
    """64 hexadecimal digits: of every picture's size, and of the pixels of 64 evenly spaced."""
    found = hashlib.sha256(cache.heights.numpy().tobytes() + cache.widths.numpy().tobytes())
    for i in torch.linspace(0, len(cache) - 1, min(64, len(cache))).long():
        found.update(cache.batch(i[None]).pixels.cpu().numpy().tobytes())
    return found.hexdigest()


def _mark(cache: PictureCache) -> list[int] | None:
    """What changes when the pixels' file is another."""
    try:
        info = (cache.home / "pixels.bin").stat()
    except OSError:
        return None
    return [info.st_size, info.st_mtime_ns, info.st_ino]


def _of_bytes(cache: PictureCache) -> str:
    """Stripes are hashed side by side (hashing leaves Python's lock), then their hashes."""
    sizes = cache.heights.long() * cache.widths.long() * cache.channels
    total = int(sizes.sum())

    def stripe(start: int) -> bytes:
        part = cache.pixels[start : min(start + _STRIPE, total)]
        return hashlib.sha256(part.cpu().numpy().data).digest()

    digest = hashlib.sha256(str((len(cache), cache.channels)).encode())
    for side in (cache.heights, cache.widths):
        digest.update(side.contiguous().numpy().data)
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        for part in pool.map(stripe, range(0, total, _STRIPE)):
            digest.update(part)
    return digest.hexdigest()
