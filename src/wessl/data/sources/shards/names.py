"""Which shards a DATA string means: brace ranges and globs, on disks and behind URLs."""

import glob
import os
import re
from itertools import product
from typing import Any

from wessl.data.forms import FORMS
from wessl.errors import UserError, pip_install

_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)")


def expand_braces(text: str) -> list[str]:
    """
    >>> expand_braces("{train,extra}-{08..10}.tar")[:4]
    ['train-08.tar', 'train-09.tar', 'train-10.tar', 'extra-08.tar']
    """
    pieces = _BRACES.split(text)
    choices = [_choices(piece, text) if i % 2 else [piece] for i, piece in enumerate(pieces)]
    return ["".join(chosen) for chosen in product(*choices)]


def _choices(inside: str, text: str) -> list[str]:
    if (found := _RANGE.fullmatch(inside)) is None:
        return inside.split(",")
    first, last = found.groups()
    if int(first) > int(last):
        raise UserError(f"{text}: the range {{{inside}}} runs backwards")
    wide = len(first) if first.startswith("0") or len(first) == len(last) else 0
    return [f"{number:0{wide}}" for number in range(int(first), int(last) + 1)]


def list_shards(text: str) -> list[str]:
    """Absolute paths or URLs of the shards, each pattern's in sorted order."""
    path = text.partition("?")[0] if text.startswith("http") else text  # a signature may follow
    if not path.lower().endswith(".tar"):
        raise UserError(
            f"{text}: URLs are those of tar shards, such as https://host/shard-{{000..099}}.tar; "
            f"compressed ones (.tar.gz) cannot be read at random, so unpack them; else give {FORMS}"
        )
    find = _remote if "://" in text else _local
    shards = [shard for pattern in expand_braces(text) for shard in find(pattern)]
    if not shards:
        raise UserError(f"{text} names no shard that exists; is it quoted, and from this folder?")
    return list(dict.fromkeys(shards))


def _local(pattern: str) -> list[str]:
    path = os.path.abspath(os.path.expanduser(pattern))
    if not glob.has_magic(path) or os.path.exists(path):
        if not os.path.exists(path):
            raise UserError(f"{path} does not exist")
        return [path]
    return sorted(glob.glob(path))


def _remote(pattern: str) -> list[str]:
    files, path = file_system(pattern)
    if "*" not in path:
        return [pattern]
    try:
        found = files.glob(path)
    except Exception as error:  # whatever a file system raises
        raise UserError(
            f"{pattern} cannot be listed ({type(error).__name__}: {error}); name the shards as a "
            "range such as shard-{000000..000099}.tar"
        ) from error
    return sorted(files.unstrip_protocol(name) for name in found)


def file_system(url: str) -> tuple[Any, str]:
    """The fsspec file system of a URL, and the path in it."""
    try:
        import fsspec
    except ImportError:
        raise UserError(f"{url}: URLs need fsspec: " + pip_install("'wessl[url]'")) from None
    try:
        return fsspec.core.url_to_fs(url)
    except ImportError as error:
        remedy = pip_install("'wessl[url]'")
        raise UserError(f"{url}: {error}; for http(s) {remedy}") from error
    except ValueError as error:
        raise UserError(f"{url}: {error}") from error
