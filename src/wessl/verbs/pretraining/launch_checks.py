"""What ``--devices N`` would fail at, said before N processes are started."""

from pathlib import Path
from typing import Any

import torch

from wessl import plan
from wessl.config import Options
from wessl.data.loading.loader import check_parts
from wessl.data.loading.memory import available_memory
from wessl.data.pictures import gigabytes
from wessl.data.sources.open import open_source
from wessl.devices import usable_cores
from wessl.errors import UserError
from wessl.verbs.pretraining.start import Change

PROCESS_BYTES = 150e6
"""What a process with torch keeps to itself before it holds any network, as measured."""


def refuse_in_vain(
    processes: int, data: str | Path, options: Options, request: dict[str, Any], change: Change
) -> None:
    """Stops where the batch cannot be split, or where so many processes find no room.

    Of GPUs there are only ever as many processes, and to ask one for its free memory would take
    some of it: there the first process finds out.
    """
    device = plan.find_device(options.device)
    if device.type == "cuda":
        return
    refuse_crowd(processes)
    source = open_source(data, directory=options.cache)
    config = plan.choose(request, source, device, change).config
    check_parts(config.optim.batch_size, processes)


def refuse_crowd(processes: int) -> None:
    need, free = processes * PROCESS_BYTES, available_memory(torch.device("cpu"))
    if need > free:
        raise UserError(
            f"--devices {processes}: so many processes take {gigabytes(need)} before they hold "
            f"anything, and {gigabytes(free)} are free; this machine has {counted_cores()}"
        )


def crowded(processes: int) -> str | None:
    """More CPU processes than cores only take turns."""
    if processes <= usable_cores():
        return None
    return (
        f"warning: --devices {processes} on {counted_cores()}: the processes will take turns, "
        f"slower than --devices {usable_cores()}"
    )


def counted_cores() -> str:
    return f"{usable_cores()} core{'s' * (usable_cores() != 1)}"
