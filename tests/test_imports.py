"""The design's table of rooms: who may import whom. Nothing lower knows anything higher."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "wessl"

THIRD_PARTY = {
    "torch", "numpy", "PIL", "scipy", "sklearn", "safetensors", "tyro", "rich", "matplotlib",
}  # fmt: skip
CONFIG = {"errors", "config", "settings"}
# Beyond the design's table: errors, config and settings are leaves that rooms above may read;
# data reads scikit-learn's digits and, with scipy, .mat files, lazily; weights reads other people's
# files for run; triton comes with torch's CUDA builds; auto, plan and verbs wire rooms as cli does.
ROOMS = {  # room: (wessl's rooms it may import, third-party packages it may import)
    "_version": (set(), set()),
    "errors": (set(), set()),
    "allocator": (set(), set()),  # what becomes of freed memory, for verbs and their processes
    "devices": (set(), {"torch"}),  # what a GPU or CPU can do, for all that choose
    "files": (set(), {"torch", "safetensors"}),  # whole files or none, for all that write
    "matrix_products": ({"devices"}, {"torch"}),  # of matrices on a CPU, for encoder and ensemble
    "ensemble": ({"matrix_products"}, {"torch"}),
    "encoder": ({"matrix_products"}, {"torch", "triton"}),
    "data": (  # fsspec and datasets open URLs and the hub, the last two decode JPEGs
        {"errors", "devices", "files"},
        {"torch", "triton", "numpy", "PIL", "scipy", "sklearn"}
        | {"fsspec", "datasets", "torchvision", "simplejpeg"},
    ),
    "config": ({"errors", "data"}, set()),  # plain dataclasses: a leaf that rooms above may read
    "settings": ({"errors", "config"}, set()),  # config by name: another such leaf
    "weights": (CONFIG | {"encoder"}, {"torch", "safetensors"}),
    "run": (
        CONFIG | {"files", "ensemble", "encoder", "weights"},
        {"torch", "numpy", "safetensors"},
    ),
    "pretrain": (
        CONFIG | {"devices", "files", "ensemble", "encoder", "data", "run"},
        {"torch", "numpy", "rich"},
    ),
    "track": (  # hears rows, and knows nothing of who trains; torch has TensorBoard's writer
        {"errors", "files", "run"},
        {"torch", "tensorboard", "wandb", "trackio"},
    ),
    "evaluate": (
        CONFIG | {"devices", "files", "encoder", "data", "run"},
        {"torch", "numpy", "PIL", "rich", "safetensors"},
    ),
    "analyse": ({"errors", "ensemble", "encoder", "data", "run"}, {"torch", "numpy", "scipy"}),
    "report": ({"errors", "run"}, {"numpy", "matplotlib"}),
    "bench": (  # measures the rooms below it; what it finds goes to the verb
        CONFIG
        | {
            "_version",
            "devices",
            "matrix_products",
            "encoder",
            "ensemble",
            "data",
            "evaluate",
            "pretrain",
        },
        {"torch", "numpy", "PIL", "sklearn", "threadpoolctl", "rich"},
    ),
    "commands": (  # what may be asked of a verb; test_cli.py sees that none of it imports torch
        CONFIG | {"recipes", "data", "evaluate", "export", "study", "track", "__init__"},
        {"tyro"},
    ),
    "export": (  # onnxruntime runs what was written, where it is installed
        {"errors", "files", "encoder", "data", "run", "evaluate"},
        THIRD_PARTY | {"onnxruntime"},
    ),
}
PARTS = {  # of a room in folders: each imports itself and those before it
    "data": (
        "forms", "draws", "sole_builder", "decoding", "batch", "sources", "labelled", "workers",
        "gpu_jpeg", "cache", "loading", "packing", "pictures", "views",
    ),
    "evaluate": (
        "settings", "spelling", "settings_read", "protocol", "labels", "duplicates", "table",
        "classifiers", "statistics", "features", "gallery", "stores", "protocols", "contestants",
        "task", "protocol_names", "suite",
    ),
}  # fmt: skip
EVERYTHING = {"study", "recipes", "auto", "plan", "verbs", "cli", "__init__", "__main__"}


def modules():
    return sorted(SOURCE.rglob("*.py"))


def room_of(path):
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports_of(path):
    """Full names of everything a file imports, at any depth in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute here"
            yield node.module


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_a_file_imports_only_what_its_room_may(path):
    import sys

    room = room_of(path)
    if room in EVERYTHING:
        return
    assert room in ROOMS, f"{room} is not in the table of rooms: add it on purpose"
    allowed_rooms, allowed_packages = ROOMS[room]
    for name in imports_of(path):
        package, *rest = name.split(".")
        if package == "wessl":
            target = rest[0] if rest else "__init__"
            assert target in allowed_rooms | {room}, f"{room} may not import wessl.{target}"
        elif package not in sys.stdlib_module_names:
            assert package in allowed_packages, f"{room} may not import {package}"


@pytest.mark.parametrize(
    "path", [p for p in modules() if room_of(p) in PARTS], ids=lambda p: str(p.relative_to(SOURCE))
)
def test_a_room_in_folders_is_read_in_one_order(path):
    room, first, *_ = path.relative_to(SOURCE).parts
    part, parts = first.removesuffix(".py"), PARTS[room]
    if part == "__init__":
        return
    before = parts[: parts.index(part) + 1]
    for name in imports_of(path):
        if name.startswith(f"wessl.{room}."):
            assert name.split(".")[2] in before, f"{part} may not import {name}"


def test_the_check_would_notice(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "def f():\n    from wessl.pretrain.loop import train\n    import scipy.stats\n"
    )
    assert list(imports_of(wrong)) == ["wessl.pretrain.loop", "scipy.stats"]
