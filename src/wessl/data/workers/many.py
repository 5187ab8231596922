"""Many pictures decoded ahead of their reader, in worker processes."""

import os
from collections import deque
from collections.abc import Generator, Iterable
from itertools import islice

from wessl.data.decoding.bad_pictures import BadPicture
from wessl.data.decoding.decode import Pixels
from wessl.data.workers.crew import Chunk, Crew, Worker
from wessl.data.workers.process import Readable, attempt
from wessl.devices import usable_cores

CHUNK = 8

Decoded = Generator[tuple[int, Pixels | BadPicture], None, None]


def decode_many(
    source: Readable,
    indices: Iterable[int],
    short_side: int | None,
    workers: int | None = None,
    keep: bool = True,
) -> Decoded:
    """Decode in the given order, ahead of the reader; a picture that fails comes as its reason.

    `workers=0` decodes in this process; `None` does so for fewer than 512 pictures, else takes a
    process a core, at most 16. Each worker is at most `source.ahead` chunks of eight pictures
    ahead. With `keep=False` a picture is only there until the next one is asked for: a copy less.
    """
    if workers is None or not source.parallel:
        workers = default_workers() if source.parallel and len(source) >= 512 else 0
    todo = iter(indices)
    if workers > 0:
        yield from _by_crew(source, todo, short_side, workers, keep)
        return
    while chunk := list(islice(todo, CHUNK)):
        source.prefetch(chunk)
        yield from ((index, attempt(source, index, short_side)) for index in chunk)


def _by_crew(
    source: Readable, todo: Iterable[int], short_side: int | None, workers: int, keep: bool
) -> Decoded:
    # One slot more than it has in hand, for what is done before its turn has come.
    crew = Crew(source, short_side, workers, slot_bytes(short_side), source.ahead + 1)
    waiting: deque[Chunk] = deque()

    def hand_out(worker: Worker) -> None:
        wants = worker.free and len(worker.given) < source.ahead
        if wants and (numbers := list(islice(todo, CHUNK))):
            waiting.append(worker.give(numbers))

    try:
        for _ in range(source.ahead):
            for worker in crew.workers:
                hand_out(worker)
        while waiting:
            while waiting[0].answers is None:
                for worker in crew.take():
                    hand_out(worker)
            chunk = waiting.popleft()
            pictures = iter(chunk.pictures(copied=keep))
            if not keep:
                yield from zip(chunk.numbers, pictures, strict=True)
            chunk.worker.free.append(chunk.slot)
            hand_out(chunk.worker)
            if keep:
                yield from zip(chunk.numbers, pictures, strict=True)
    finally:
        crew.end()


def default_workers() -> int:
    """A process a core, at most 16; training processes of one machine share its cores."""
    return max(1, min(16, usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))


def slot_bytes(short_side: int | None) -> int:
    """Room for a chunk of colour pictures of 2:1; what finds none goes through the pipe."""
    return CHUNK * 2 * 3 * (short_side or 512) ** 2
