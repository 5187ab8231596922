"""Where the runs of a study go."""

import torch

from wessl import plan
from wessl.devices import usable_cores
from wessl.errors import UserError
from wessl.study.runner import Slot


def make_slots(device: str, parallel: int | None, per_device: int, alone: bool) -> list[Slot]:
    """On GPUs ``per_device`` a device, on a CPU one a core; ``alone`` when time is measured."""
    for flag, count in (("--parallel", parallel), ("--per-device", per_device)):
        if count is not None and count < 1:
            raise UserError(f"{flag} must be at least 1, got {count}")
    chosen, cores = plan.find_device(device), usable_cores()
    if chosen.type == "cpu":
        count = 1 if alone else (parallel or cores)
        return [Slot("cpu", cores if alone else max(1, cores // count))] * count
    devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    if chosen.index is not None:
        devices = [device]
    places = devices if alone else devices * per_device
    places = places[: parallel or len(places)]
    return [Slot(place, max(1, cores // len(places))) for place in places]
