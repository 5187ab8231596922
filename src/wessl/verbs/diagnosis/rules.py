"""What ``wessl doctor`` makes of what it found: each thing in the way, with its remedy."""

from collections.abc import Callable
from typing import Any

from wessl.errors import pip_install
from wessl.track.installed import ALSO
from wessl.verbs.diagnosis.facts import gib

Record = dict[str, Any]

_PURPOSE = {
    "hf": "Hugging Face's weights and datasets",
    "onnx": "ONNX",
    "parquet": "embed -o FILE.parquet",
    "jpeg": "JPEGs decoded a fifth to a third faster",
    "url": "shards at URLs",
    "dev": "`make test`",
    "docs": "`make docs`",
    "tensorboard": "--track tensorboard",
    "wandb": "--track wandb",
    "trackio": "--track trackio",
}
"""What an extra is for, or a package of one that serves several ends."""
_LOW_DISK = 5 * 2**30


def no_gpu(found: Record) -> list[str]:
    if any(name.startswith("cuda:") for name in found["devices"]):
        return []
    if found["devices"]["NVIDIA driver"] is None:
        return ["no NVIDIA GPU: training runs on the CPU. Remedy: none needed for small data"]
    if found["torch"]["CUDA"] is None:
        return ["an NVIDIA driver, but a torch without CUDA. Remedy: install torch's CUDA build"]
    return [
        "an NVIDIA driver and torch with CUDA, but no GPU that torch can use. Remedy: look at "
        "nvidia-smi and CUDA_VISIBLE_DEVICES; the driver may be older than torch wants"
    ]


def no_compiler(found: Record) -> list[str]:
    if not any(name.startswith("cuda:") for name in found["devices"]):
        return []
    said = []
    if found["torch"]["triton"] is None:
        remedy = f"{pip_install('triton')}, or --compile off"
        said.append(f"no triton: slower kernels. Remedy: {remedy}")
    if found["torch"]["compiler"] is None:
        said.append(
            "no C compiler, which torch.compile needs. Remedy: install gcc, or --compile off"
        )
    return said


def too_many_threads(found: Record) -> list[str]:
    threads = found["devices"]["threads"]
    if threads["torch"] <= threads["usable"]:
        return []
    usable = threads["usable"]
    return [
        f"torch uses {threads['torch']} threads on {usable} usable cores, which wait for each "
        f"other. Remedy: OMP_NUM_THREADS={usable}"
    ]


def bad_cache(found: Record) -> list[str]:
    place = found["places"]
    if not place["writable"]:
        return [f"{place['cache']} cannot be written. Remedy: set WESSL_CACHE to another folder"]
    if place["free_bytes"] < _LOW_DISK:
        free = gib(place["free_bytes"])
        return [
            f"only {free} free for decoded pictures. Remedy: set WESSL_CACHE to a larger disk, "
            "delete what is in it, or train with --decode stream"
        ]
    return []


def missing_packages(found: Record) -> list[str]:
    said = []
    for group, versions_of in found["packages"].items():
        absent = [name for name, version in versions_of.items() if version is None]
        if absent and group == "needed":
            said.append(f"{', '.join(absent)} missing. Remedy: {pip_install(' '.join(absent))}")
        elif group.startswith("["):
            said += _missing_of_extra(group.strip("[]"), absent)
    return said


def _missing_of_extra(extra: str, absent: list[str]) -> list[str]:
    """One line for all packages that serve the same end."""
    purposes: dict[str, list[str]] = {}
    for name in absent:
        purpose = _PURPOSE.get(extra) or _PURPOSE.get(name) or f"the extra {extra}"
        purposes.setdefault(purpose, []).append(name)
    return [
        f"{', '.join(names)} missing, only for {purpose}. Remedy: {pip_install(' '.join(names))}"
        + "".join(ALSO.get(name, "") for name in names)
        for purpose, names in purposes.items()
    ]


RULES: list[Callable[[Record], list[str]]] = [
    no_gpu,
    no_compiler,
    too_many_threads,
    bad_cache,
    missing_packages,
]
