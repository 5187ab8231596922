"""Where a source's cache lies, whether it is there, and its building if not.

It is written under another name and renamed when complete, so a folder of the right name is always
whole (`cache.sync` tells why even when the power fails); a lock lets a second process wait instead
of decoding again.
"""

import hashlib
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from wessl.data.cache.cache import PictureCache
from wessl.data.cache.sync import is_marked, is_safe, sync_behind
from wessl.data.cache.writer import Progress, write_cache
from wessl.data.decoding.bad_pictures import check_bad
from wessl.data.gpu_jpeg.nvjpeg import BatchDecoder
from wessl.data.sole_builder import sole_builder
from wessl.data.sources.source import Source, cache_directory

VERSION = 2


def build_cache(
    source: Source,
    short_side: int | None = 256,
    directory: str | Path | None = None,
    workers: int | None = None,
    max_bad: int | float = 0.5,
    progress: Progress | None = None,
    jpeg: BatchDecoder | None = None,
) -> PictureCache:
    """Open the cache of `source`, decoding it first if there is none or the source has changed.

    `short_side` shrinks larger pictures (`None` keeps all as they are). `max_bad` is how many
    pictures (int) or what share of them (float) may fail to decode. `progress(done, total)` is
    called while decoding. `workers` as in `decode_many`. `jpeg` decodes JPEGs instead of Pillow,
    into a cache of its own.

    ::

        cache = build_cache(open_source("photos/"), short_side=256, progress=print).to("cuda")
    """
    home, wanted = _wanted(source, short_side, directory, None if jpeg is None else jpeg.name)
    cache = _open(home, wanted)
    if cache is not None and is_marked(home):  # for us, unless its builder still lives
        sync_behind(home, sole_builder(home, lambda: True))
    while cache is None:
        with ExitStack() as lock:
            alone = lock.enter_context(sole_builder(home, lambda: _open(home, wanted) is not None))
            cache = _open(home, wanted)  # another process may have built it while we waited
            if cache is None and alone:
                write_cache(source, home, wanted, workers, max_bad, progress, jpeg)
                cache = _open(home, wanted)
                if cache is None:
                    raise RuntimeError(f"{home} vanished just after it was written")
                if is_marked(home):
                    sync_behind(home, lock.pop_all())
    check_bad(cache.skipped, len(source), max_bad, len(source))
    return cache


def find_cache(
    source: Source,
    short_side: int | None = 256,
    directory: str | Path | None = None,
    jpeg: str | None = None,
) -> PictureCache | None:
    """The cache that `build_cache` would open without decoding anything, or None.

    `jpeg` is the name of what decoded its JPEGs, if that was not Pillow.
    """
    if not _home(source, short_side, directory, jpeg).exists():
        return None  # without looking at every file
    return _open(*_wanted(source, short_side, directory, jpeg))


def _identity(source: Source, short_side: int | None, jpeg: str | None) -> dict[str, Any]:
    identity = {
        "version": VERSION,
        "location": source.location,
        "short_side": short_side,
        "channels": source.channels,
    }
    return identity if jpeg is None else identity | {"jpeg": jpeg}


def _home(
    source: Source, short_side: int | None, directory: str | Path | None, jpeg: str | None
) -> Path:
    # The folder's name leaves the fingerprint out: a changed source replaces its old cache.
    identity = json.dumps(_identity(source, short_side, jpeg)).encode()
    key = hashlib.blake2b(identity, digest_size=10).hexdigest()
    return cache_directory(directory) / f"pictures-{key}"


def _wanted(
    source: Source, short_side: int | None, directory: str | Path | None, jpeg: str | None
) -> tuple[Path, dict[str, Any]]:
    """Where the cache lies, and what its header must say."""
    wanted = _identity(source, short_side, jpeg) | {"fingerprint": source.fingerprint}
    return _home(source, short_side, directory, jpeg), wanted


def _open(home: Path, wanted: dict[str, Any]) -> PictureCache | None:
    """The cache if it is there, whole, and of this very source."""
    try:
        header = json.loads((home / "header.json").read_text())
        whole = (home / "pixels.bin").stat().st_size == header["nbytes"] and is_safe(home)
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError, KeyError):
        return None
    return PictureCache(home, header) if whole and wanted.items() <= header.items() else None
