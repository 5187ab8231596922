"""Batches made in a thread ahead of their reader, and moved to the device meanwhile."""

import queue
import threading
from collections.abc import Generator
from contextlib import closing, nullcontext, suppress

import torch
from torch import Tensor

from wessl.data.batch import Batch

Numbered = Generator[tuple[Tensor, Batch], None, None]


def ahead_of(made: Numbered, device: torch.device, depth: int) -> Numbered:
    """Run `made` in a thread, at most `depth` batches ahead, and move its batches to the device."""
    ready: queue.Queue[tuple[Tensor, Batch, torch.cuda.Event | None] | Exception] = queue.Queue(
        depth
    )
    stop = threading.Event()
    # Copies have their own stream, so that they run beside the training step and not after it.
    side = torch.cuda.Stream(device) if device.type == "cuda" else None

    def put(item: tuple[Tensor, Batch, torch.cuda.Event | None] | Exception) -> None:
        while not stop.is_set():
            with suppress(queue.Full):
                ready.put(item, timeout=0.1)
                break

    def run() -> None:
        try:
            with closing(made):
                while not stop.is_set():
                    indices, batch = next(made)
                    put((indices, *_move(batch, device, side)))
        except Exception as error:
            put(error)

    thread = threading.Thread(target=run, name="wessl-loader", daemon=True)
    thread.start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, Exception):
                raise item
            indices, batch, copied = item
            if copied is not None:
                here = torch.cuda.current_stream(device)
                here.wait_event(copied)
                for part in (batch.pixels, batch.heights, batch.widths):
                    part.record_stream(here)
            yield indices, batch
    finally:
        stop.set()
        thread.join()


def _move(
    batch: Batch, device: torch.device, side: "torch.cuda.Stream | None"
) -> tuple[Batch, torch.cuda.Event | None]:
    with torch.cuda.stream(side) if side is not None else nullcontext():
        if side is None:
            return batch.map(lambda part: part.to(device)), None
        moved = batch.map(lambda part: part.pin_memory().to(device, non_blocking=True))
        return moved, side.record_event()
