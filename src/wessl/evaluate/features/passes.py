"""Pictures through a frozen encoder, a batch at a time, on one device or several at once."""

import copy
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Literal

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import ProcessGroup

from wessl.data.batch import Batch
from wessl.data.cache.cache import PictureCache
from wessl.devices import has_bf16
from wessl.errors import UserError
from wessl.evaluate.features.readings import TOKENS, Reading, check_readings
from wessl.evaluate.settings import Precision

if TYPE_CHECKING:
    from wessl.evaluate.features.trained_encoder import TrainedEncoder

Progress = Callable[[int, int], None]
View = Callable[["TrainedEncoder", Batch, Tensor], Tensor]
"""From an encoder, a batch on its device and the pictures' numbers to images `(b, ch, h, w)`."""
Found = dict[Reading, Tensor]
PIECE = 1 << 16
"""Pictures whose features processes give each other at once."""


def place_in(group: ProcessGroup | None) -> tuple[int, int]:
    """This process's number and how many there are; without a group, it alone."""
    return (0, 1) if group is None else (dist.get_rank(group), dist.get_world_size(group))


def settle_precision(
    precision: Precision, devices: Sequence[torch.device]
) -> Literal["bf16", "fp32"]:
    """`auto` is bf16 where every device is a GPU that has it."""
    if precision == "bf16" or precision == "fp32":
        return precision
    if precision != "auto":
        raise UserError(f"precision must be auto, bf16 or fp32, not {precision!r}")
    return "bf16" if all(d.type == "cuda" and has_bf16(d) for d in devices) else "fp32"


class EncoderPass:
    """An encoder with a replica on each device, which fills tensors with what it reads.

    Batches are cut the same way whatever the devices, and each is computed by one of them, so their
    number does not change the features. Nor do the processes of a `group`, which take batches in
    turn and give each other what they found.
    """

    def __init__(
        self,
        encoder: "TrainedEncoder",
        readings: Sequence[Reading],
        precision: Precision = "auto",
        devices: Sequence[str | torch.device] | None = None,
        batch_size: int = 256,
        group: ProcessGroup | None = None,
    ):
        check_readings(encoder.encoder, readings)
        if batch_size < 1:
            raise UserError(f"batch size must be 1 or more, not {batch_size}")
        places = [torch.device(d) for d in devices] if devices else [encoder.device]
        self.readings, self.batch_size, self.group = tuple(readings), batch_size, group
        self.precision = settle_precision(precision, places)
        self.replicas = [
            encoder if i == 0 and place == encoder.device else copy.deepcopy(encoder).to(place)
            for i, place in enumerate(places)
        ]

    @property
    def device(self) -> torch.device:
        """Of the first replica."""
        return self.replicas[0].device

    def allocate(self, n: int, device: str | torch.device = "cpu") -> Found:
        dim = self.replicas[0].dim
        return {r: torch.empty(n, TOKENS[r] * dim, device=device) for r in self.readings}

    def run(
        self,
        cache: PictureCache,
        indices: Tensor,
        view: View,
        out: Found,
        progress: Progress | None = None,
    ) -> None:
        """Fill row i of every tensor of `out` with the features of picture `indices[i]`."""
        channels = self.replicas[0].description["channels"]
        if cache.channels != channels:
            raise UserError(
                f"the encoder takes pictures of {channels} channel{'s' * (channels != 1)} and "
                f"these have {cache.channels}; open them with channels={channels}"
            )
        rank, world = place_in(self.group)
        starts = range(0, len(indices), self.batch_size)[rank::world]
        jobs = deque((start, indices[start : start + self.batch_size]) for start in starts)
        home = next(iter(out.values())).device
        count, lock = 0, threading.Lock()
        if world > 1:
            for values in out.values():
                values.zero_()

        def keep(start: int, rows: int, found: Found, ready: torch.cuda.Event | None) -> None:
            nonlocal count
            if ready is not None:
                ready.synchronize()
            for reading, values in found.items():
                out[reading][start : start + rows].copy_(values)
            with lock:
                count += rows
                if progress is not None:
                    progress(min(world * count, len(indices)), len(indices))

        def work(replica: "TrainedEncoder") -> None:
            waiting = None
            while jobs:
                try:
                    start, part = jobs.popleft()
                except IndexError:  # another replica took the last one
                    break
                found = self._read(replica, cache, part, view, home)
                # Kept one batch late: a GPU then computes while the host gathers the next.
                if waiting is not None:
                    keep(*waiting)
                waiting = start, len(part), *found
            if waiting is not None:
                keep(*waiting)

        if len(self.replicas) == 1:
            work(self.replicas[0])
        else:
            with ThreadPoolExecutor(len(self.replicas), "wessl-encoder") as pool:
                try:
                    for done in [pool.submit(work, replica) for replica in self.replicas]:
                        done.result()
                finally:
                    jobs.clear()  # after an error the other replicas stop too
        if world > 1:
            for values in out.values():
                for piece in values.split(PIECE):
                    dist.all_reduce(piece, group=self.group)  # zero and a number is that number

    @torch.no_grad()
    def _read(
        self,
        replica: "TrainedEncoder",
        cache: PictureCache,
        part: Tensor,
        view: View,
        home: torch.device,
    ) -> tuple[Found, torch.cuda.Event | None]:
        """What is read from some pictures, and when it will have reached the host."""
        device = replica.device
        away = device.type == "cuda"

        def send(pixels: Tensor) -> Tensor:
            if away and pixels.device.type == "cpu":
                pixels = pixels.pin_memory()  # or the copy would wait for the batch before it
            return pixels.to(device, non_blocking=True)

        with torch.cuda.device(device) if away else nullcontext():
            images = view(replica, cache.batch(part).map(send), part)
            bf16 = self.precision == "bf16"
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                found = replica.read(images, self.readings)
            if not away or home.type != "cpu":
                return found, None
            # Sent off now: later it would queue behind the next batch.
            sent = {r: x.to(home, torch.float32, non_blocking=True) for r, x in found.items()}
            return sent, torch.cuda.current_stream(device).record_event()


def near(cache: PictureCache, device: torch.device) -> PictureCache:
    """The cache on a GPU if it takes at most half of the free memory there, for many passes."""
    if device.type != "cuda" or cache.device.type == "cuda":
        return cache
    return cache.to(device) if 2 * cache.nbytes <= torch.cuda.mem_get_info(device)[0] else cache
