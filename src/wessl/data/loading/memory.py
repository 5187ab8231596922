"""How much memory there is to take, on a GPU or in the machine."""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import torch

UNKNOWN = 8 * 2**30
"""Where the system does not say."""


def available_memory(device: str | torch.device) -> int:
    """Bytes that are free on a GPU; on the CPU, what the system and the container's limit leave.

    >>> available_memory("cpu") > 0
    True
    """
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return min([_of_machine(), *left_by_limits(_groups(Path("/sys/fs/cgroup")))])


def _of_machine() -> int:
    with suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable:"))
        return int(line.split()[1]) * 1024
    with suppress(AttributeError, OSError, ValueError):  # not Linux: all of it, for want of better
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return UNKNOWN


def left_by_limits(groups: Iterable[Path]) -> Iterator[int]:
    """What the memory limit of each control group leaves; pages of files can be had back."""
    for folder in groups:
        for limit, used, key in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            with suppress(OSError, ValueError):  # "max", or no such file: no limit here
                most, taken = int((folder / limit).read_text()), int((folder / used).read_text())
                stat = dict(line.split() for line in (folder / "memory.stat").open())
                yield max(0, most - taken + int(stat.get(key, 0)))


def _groups(root: Path) -> Iterator[Path]:
    """The groups a process is in, and those these lie in: each may have its own limit."""
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers in ("", "memory"):
                top = root / controllers
                here = top / path.lstrip("/")
                yield from (here, *(p for p in here.parents if p.is_relative_to(top)))
