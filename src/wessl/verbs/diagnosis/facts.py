"""What ``wessl doctor`` looks at, part by part.

A part that fails is reported as broken; so each imports for itself what it needs.
"""

import contextlib
import os
import platform
import re
import shutil
import sys
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

from wessl._version import __version__
from wessl.devices import cpu_facts, cpu_name, usable_cores

Record = dict[str, Any]

_REQUIREMENT = re.compile(
    r"^(?P<name>[\w.-]+)\s*(?P<wanted>[^;]*?)\s*(?:;.*\bextra\s*==\s*['\"](?P<extra>[\w-]+)['\"].*)?$"
)
_INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "bf16", "sve")
_PATIENCE = 2.0
"""Seconds after which the cache's size is only known to be at least what was counted."""


def versions() -> Record:
    return dict(
        wessl=f"{__version__}, in {Path(__file__).parents[2]}",
        python=f"{platform.python_version()}, {sys.executable}",
        system=f"{platform.platform()}, {platform.machine()}",
    )


def torch_build() -> Record:
    import torch

    cudnn = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    return dict(
        torch=torch.__version__,
        CUDA=torch.version.cuda,
        cuDNN=cudnn,
        triton=_version("triton"),
        compiler=next(filter(None, map(shutil.which, (os.environ.get("CC", "cc"), "gcc"))), None),
    )


def packages() -> Record:
    """Versions of what wessl needs, then of each extra; none where a package is not there."""
    found: Record = {"needed": {}}
    for requirement in metadata.requires("wessl") or []:
        read = _REQUIREMENT.match(requirement)
        if read is not None:
            group = f"[{read['extra']}]" if read["extra"] else "needed"
            found.setdefault(group, {})[read["name"]] = _version(read["name"])
    others = {name: _version(name) for name in ("timm", "torchvision", "lightly")}
    return found | {"other tools": others}


def devices() -> Record:
    import torch

    from wessl.data.loading.memory import available_memory

    found: Record = {"CPU": _cpu()}
    found["threads"] = dict(torch=torch.get_num_threads(), usable=usable_cores())
    found["memory"] = f"{gib(available_memory('cpu'))} available"
    for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        about = torch.cuda.get_device_properties(i)
        free, total = torch.cuda.mem_get_info(i)
        bf16 = "bf16" if about.major >= 8 else "no bf16"
        found[f"cuda:{i}"] = (
            f"{about.name}, {gib(free)} of {gib(total)} free, "
            f"capability {about.major}.{about.minor}, {bf16}"
        )
    found["NVIDIA driver"] = _driver()
    return found


def places() -> Record:
    from wessl.data.sources.open import cache_directory

    cache = cache_directory()
    there = next(place for place in (cache, *cache.absolute().parents) if place.exists())
    size, whole = _size(cache)
    return dict(
        cache=str(cache),
        size=f"{'' if whole else 'at least '}{gib(size)}",
        free_bytes=shutil.disk_usage(there).free,
        writable=os.access(there, os.W_OK | os.X_OK),
    )


def speed() -> Record:
    from wessl.verbs.diagnosis import speed

    return speed.measure()


PARTS: dict[str, Callable[[], Record]] = {
    "versions": versions,
    "torch": torch_build,
    "packages": packages,
    "devices": devices,
    "places": places,
}


def _version(package: str) -> str | None:
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None


def _cpu() -> str:
    import torch

    said = cpu_facts()
    has = set(said.get("flags", said.get("Features", "")).split())
    listed = " ".join(word for word in _INSTRUCTIONS if word in has)
    used = torch.backends.cpu.get_cpu_capability()
    return f"{cpu_name()}; {listed or 'instructions unknown'}; torch uses {used}"


def _driver() -> str | None:
    with contextlib.suppress(OSError, IndexError):
        return Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    return shutil.which("nvidia-smi")


def _size(folder: Path) -> tuple[int, bool]:
    """Bytes of the files in it, and whether all were counted in time."""
    began, total = time.monotonic(), 0
    for place, _, files in os.walk(folder):
        for file in files:
            with contextlib.suppress(OSError):
                total += os.stat(os.path.join(place, file)).st_size
        if time.monotonic() - began > _PATIENCE:
            return total, False
    return total, True


def gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
