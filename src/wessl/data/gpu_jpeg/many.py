"""Many pictures ahead of their reader, their JPEGs decoded and shrunk on a GPU.

A thread reads files and their headers, another drives the GPU. What the GPU does not take is
decoded where it was read, by Pillow, which also finds the words for what is broken.
"""

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import islice

from wessl.data.decoding.bad_pictures import BadPicture
from wessl.data.gpu_jpeg.driver import Driver, Lot, Read
from wessl.data.gpu_jpeg.file import as_jpeg
from wessl.data.gpu_jpeg.nvjpeg import BatchDecoder
from wessl.data.gpu_jpeg.shrink import way_of
from wessl.data.sources.source import Source
from wessl.data.workers.many import CHUNK, Decoded, decode_many
from wessl.data.workers.process import attempt

LOT = 64
"""Pictures that are decoded and copied together."""
LOTS = 4
"""Lots under way at a time."""


def decode_with(
    jpeg: BatchDecoder | None,
    source: Source,
    indices: Iterable[int],
    short_side: int | None,
    workers: int | None = None,
    keep: bool = True,
) -> Decoded:
    """`decode_many`, with JPEGs by `jpeg` if there is one and the source has files in colour.

    `workers` are then threads that read, and decode what is no JPEG; None means one: each more
    takes Python's lock from the thread that drives the GPU, and pays only where files come slowly.
    Every picture stays as it is, kept or not, but keeps its neighbours' memory too.
    """
    if jpeg is None or source.channels != 3 or not _has_files(source):
        return decode_many(source, indices, short_side, workers, keep)
    return _decode(jpeg, source, indices, short_side, max(1, workers or 1))


def _has_files(source: Source) -> bool:
    try:
        return source.encoded(0) is not None
    except BadPicture:  # there should be one
        return True


def _decode(
    jpeg: BatchDecoder,
    source: Source,
    indices: Iterable[int],
    short_side: int | None,
    threads: int,
) -> Decoded:
    todo = iter(indices)
    driver = Driver(source, short_side, jpeg)
    lots: deque[Future[Lot]] = deque()
    with ExitStack() as end:
        driving = ThreadPoolExecutor(1, "wessl-jpeg")
        end.callback(driving.shutdown, cancel_futures=True)
        reading = ThreadPoolExecutor(threads, "wessl-read")
        end.callback(reading.shutdown, cancel_futures=True)  # first, so that nobody waits for it

        def ask() -> None:
            if numbers := list(islice(todo, LOT)):
                chunks = [numbers[i : i + CHUNK] for i in range(0, len(numbers), CHUNK)]
                read = [reading.submit(_read, source, chunk, short_side) for chunk in chunks]
                lots.append(driving.submit(driver.decode, numbers, read))

        for _ in range(LOTS):
            ask()
        while lots:
            lot = lots.popleft().result()
            ask()
            yield from lot.pictures()


def _read(source: Source, chunk: list[int], short_side: int | None) -> list[Read]:
    with suppress(Exception):  # a hint: reading them finds the same error, and tells it
        source.prefetch(chunk)
    return [_read_one(source, index, short_side) for index in chunk]


def _read_one(source: Source, index: int, short_side: int | None) -> Read:
    with suppress(BadPicture):  # reading it again tells why, in the source's own words
        file = source.encoded(index)
        jpeg = None if file is None else as_jpeg(file)
        way = None if jpeg is None else way_of(jpeg, short_side)
        if jpeg is not None and way is not None:
            return jpeg, way
        if file is not None:
            return source.read_encoded(file, short_side)
    return attempt(source, index, short_side)
