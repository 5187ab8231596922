"""Where pictures come from: `open_source` turns the DATA string of a command into a `Source`."""

import os
from pathlib import Path

from wessl.data.decoding.decode import ENDINGS
from wessl.data.forms import FORMS
from wessl.data.sources.arrays import ArraySource, open_digits, read_npz
from wessl.data.sources.file_urls import as_path
from wessl.data.sources.files import FileSource, open_folder, open_list
from wessl.data.sources.source import Source, Subset, cache_directory
from wessl.errors import UserError

__all__ = ["ArraySource", "FileSource", "Source", "Subset", "cache_directory", "open_source"]


def open_source(
    data: str | Path, channels: int | None = None, directory: str | Path | None = None
) -> Source:
    """Open a DATA string; `channels` overrides what the pictures suggest.

    >>> len(open_source("builtin://digits/test"))
    500

    ::

        open_source("photos/")                # sub-folders become classes if they hold all pictures
        open_source("train.txt")              # a path a line, optionally a tab and a label
        open_source("cells.npz", channels=1)  # images (n, h, w) or (n, h, w, c), labels optional
        open_source("shards/shard-*.tar")     # WebDataset's layout; https://, s3:// and others too
        open_source("hf://cifar10:test")      # a data set of the Hugging Face hub

    A file:// URL means what the path in it means.
    The index of a large folder or of shards is kept in `directory` (default: `cache_directory()`).
    """
    text = as_path(os.fspath(data))
    if text.startswith("builtin://"):
        return open_digits(text, channels)
    if text.startswith("hf://"):
        from wessl.data.sources.hub import open_hub

        return open_hub(text, channels)
    path = Path(text).expanduser()
    if "://" in text or (path.suffix.lower() == ".tar" and not path.is_dir()):
        from wessl.data.sources.shards.source import open_shards

        return open_shards(text, channels, cache_directory(directory))
    if path.is_dir():
        return _folder(path, channels, cache_directory(directory))
    if not path.exists():
        raise UserError(f"{text} does not exist; give {FORMS}")
    if path.suffix.lower() == ".npz":
        return ArraySource(str(path.resolve()), *read_npz(path), channels)
    if path.suffix.lower() in ENDINGS:
        raise UserError(f"{text} is one picture; give {FORMS}")
    return open_list(path, channels)


def _folder(path: Path, channels: int | None, keep: Path) -> Source:
    if (source := open_folder(path, channels, keep)) is not None:
        return source
    if any(path.glob("*.tar")):
        from wessl.data.sources.shards.source import open_shards

        return open_shards(str(path / "*.tar"), channels, keep)
    raise UserError(
        f"{path} holds no pictures ({' '.join(ENDINGS)}) at any depth and no .tar shards"
    )
