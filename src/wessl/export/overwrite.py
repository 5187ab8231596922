"""What a command reads is never what it writes over, by whatever name the two are called."""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from wessl.data.sources.file_urls import as_path
from wessl.data.sources.files import look_at_files
from wessl.data.sources.open import FileSource, Source
from wessl.data.sources.shards.source import ShardSource
from wessl.errors import UserError

Identity = tuple[int, int]


class Overwritten:
    """The files that stand where `out` and `more` will be written; of a folder, all below it.

    ::

        over = Overwritten(Path("cells.npz"), [Path("cells.npz.skipped.txt")])
        over.refuse("DATA", "./cells.npz")  # a UserError if that is one of them
    """

    def __init__(self, out: Path, more: Iterable[Path] = ()):
        self.out = out
        self.there = dict[Identity, Path]()
        for path in (*more, out):
            for file in (path, *_below(path)):
                if (found := _identity(file)) is not None:
                    self.there[found] = file

    def refuse(self, what: str, path: str | Path) -> None:
        """`path` may be a URL, or anything else that is no file: then there is nothing to lose."""
        found = _identity(Path(as_path(os.fspath(path))).expanduser())
        if found is not None and found in self.there:
            raise UserError(self._said(f"{what} itself ({path})", self.there[found]))

    def refuse_encoder(self, run: Path) -> None:
        self.refuse("RUN", run)
        self.refuse("the encoder's weights file", run / "encoder.safetensors")

    def refuse_pictures(self, source: Source) -> None:
        file: Callable[[int], str]
        if isinstance(source, ShardSource):
            count, file = len(source.files.shards), source.files.shards.__getitem__
        elif isinstance(source, FileSource):
            count, file = len(source), source.file
        else:
            return

        def look(block: range) -> None:
            for i in block:
                if (found := _identity(file(i))) is not None and found in self.there:
                    raise UserError(self._said(f"a picture ({file(i)})", self.there[found]))

        if self.there:  # or there is nothing to compare with
            look_at_files(count, look)

    def _said(self, what: str, written: Path) -> str:
        also = "" if written == self.out else f" would also write over or remove {written}, which"
        return f"-o {self.out}{also} is {what}, and that would be lost; name another file"


def _below(path: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(path):
        yield from (Path(folder, name) for name in (*folders, *files))


def _identity(path: str | Path) -> Identity | None:
    try:
        info = os.stat(path)  # of what a link leads to
    except (OSError, ValueError):
        return None
    return info.st_dev, info.st_ino
