"""Any source into tar shards: in random order, in parallel, verified, and resumed after a kill."""

import errno
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict
from itertools import islice
from pathlib import Path

from wessl.data.decoding.bad_pictures import BadPicture, Skipped, check_bad
from wessl.data.decoding.decode import Pixels
from wessl.data.packing.encode import Encoder, split_off_ending
from wessl.data.packing.folder import (
    SKIPPED,
    Journal,
    Request,
    alone,
    begin,
    finished,
    note,
    shard_name,
    skipped_in,
    write_journal,
    write_skipped,
)
from wessl.data.packing.shard import Member, write_shard
from wessl.data.packing.target import REQUEST
from wessl.data.sources.shards.files import ShardFiles
from wessl.data.sources.shards.index import INDEX, merge, save_index
from wessl.data.sources.shards.labels import CLASSES
from wessl.data.sources.shards.scan import Scanned, scan_tar
from wessl.data.sources.source import Source
from wessl.data.workers.many import decode_many
from wessl.errors import Failure
from wessl.files import FULL, write_json

Progress = Callable[[int, int], None]


def pack_source(
    source: Source,
    out: Path,
    request: Request,
    workers: int | None = None,
    max_bad: int | float = 0.05,
    progress: Progress | None = None,
) -> Skipped:
    """Writes the shards that `out` does not hold whole, and returns what could not be read."""
    with alone(out):
        begun = begin(out, request)
        done = finished(out, request)
        if not begun and len(done) == request.shards and _all_beside(source, out, done):
            return skipped_in(done)
        try:
            if source.classes is not None:
                write_json(out / CLASSES, source.classes)
            written = _write(source, out, request, done, workers, max_bad, progress)
            _finish(source, out, request, written, done)
        except OSError as error:
            if error.errno in (*FULL, errno.EFBIG):
                raise Failure(
                    f"no room left for shards in {out}; those that are whole stay: free some, and "
                    "the same command goes on"
                ) from error
            raise
    return skipped_in(done)


def _all_beside(source: Source, out: Path, done: Journal) -> bool:
    wanted = {INDEX: True, CLASSES: source.classes is not None, SKIPPED: bool(skipped_in(done))}
    return all((out / name).exists() for name in wanted if wanted[name])


def _write(
    source: Source,
    out: Path,
    request: Request,
    done: Journal,
    workers: int | None,
    max_bad: int | float,
    progress: Progress | None,
) -> dict[int, Scanned]:
    """Writes what is not `done`, and adds it there."""
    left = [shard for shard in range(request.shards) if shard not in done]
    skipped = skipped_in(done)
    order = request.order()
    wanted = (int(order[place]) for shard in left for place in request.places(shard))
    encoder = Encoder(source, request.quality)
    tried = request.pictures - sum(len(request.places(shard)) for shard in left)
    written = {}
    with closing(decode_many(encoder, wanted, request.short_side, workers)) as encoded:

        def members(shard: int) -> Iterator[Member]:
            nonlocal tried
            places = request.places(shard)
            for place, (index, content) in zip(places, islice(encoded, len(places)), strict=True):
                if isinstance(content, BadPicture):
                    skipped.append((source.name(index), str(content)))
                    check_bad(skipped, request.pictures, max_bad, tried + 1)
                else:
                    yield _member(source, place, index, content)
                tried += 1
                if progress is not None:
                    progress(tried, request.pictures)

        for shard in left:
            known, part = len(skipped), out / f".{shard_name(shard)}.part"
            written[shard] = write_shard(part, members(shard))
            part.replace(out / shard_name(shard))
            done[shard] = note(out, shard, skipped[known:])
    return written


def _member(source: Source, place: int, index: int, content: Pixels) -> Member:
    file, ending = split_off_ending(content)
    label = None if source.labels is None else int(source.labels[index])
    named = None if label is None or source.classes is None else source.classes[label]
    return Member(f"{place:09}", file, ending, source.name(index), label, named)


def _finish(
    source: Source, out: Path, request: Request, written: dict[int, Scanned], done: Journal
) -> None:
    paths = [out / shard_name(shard) for shard in range(request.shards)]
    parts = [written[i] if i in written else _scan(path) for i, path in enumerate(paths)]
    index = merge(parts, ShardFiles([str(path.resolve()) for path in paths]))
    index.pixel_format, index.classes = source.pixel_format, source.classes
    sizes = [[path.name, path.stat().st_size] for path in paths]
    save_index(out / INDEX, index, {"shards": sizes})
    if skipped := skipped_in(done):
        write_skipped(out, skipped)
    write_journal(out, done)
    told = dict(complete=True, packed=len(index), skipped=len(skipped))
    write_json(out / REQUEST, asdict(request) | told)


def _scan(path: Path) -> Scanned:
    with path.open("rb") as file:
        return scan_tar(file, path.stat().st_size, str(path))
