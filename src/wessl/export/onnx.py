"""ONNX: one graph for any number of pictures of any size, without Python or torch."""

import contextlib
import importlib.util
import io
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

from wessl.errors import Failure, UserError, pip_install
from wessl.export.graph import Graph
from wessl.export.source import Source
from wessl.export.told import Told, under

FILE = "encoder.onnx"
OPSET = 18
TOLERANCE = 1e-4
_LIMIT = 2_000_000_000  # bytes that one ONNX file can hold


def check_onnx() -> None:
    """Before any work: whether the packages that write the format are there."""
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        raise UserError(
            f"--to onnx needs {' and '.join(missing)}; install them with "
            + pip_install("'wessl[onnx]'")
        )


def write_onnx(source: Source, folder: Path, normalise: bool = False) -> Told:
    encoder, said = source.encoder.encoder, source.described
    if sum(tensor.nbytes for tensor in source.weights.values()) > _LIMIT:
        raise UserError("--to onnx: the encoder is larger than the 2 GB that an ONNX file can hold")
    least = getattr(encoder, "patch_size", 1)
    graph = Graph(encoder, said, normalise).eval()
    # Sides that differ from one another and from any other size, so that none is taken for another.
    example = torch.rand(2, said["channels"], 3 * least + 1, 5 * least + 2)
    with _quietly(), torch.no_grad():
        program = torch.onnx.export(
            graph,
            (example,),
            dynamo=True,
            opset_version=OPSET,
            input_names=["images"],
            output_names=["cls", "patches"],
            dynamic_shapes=dict(images={0: "batch", 2: "height", 3: "width"}),
            external_data=False,
            verbose=False,
        )
        assert program is not None
        for key, value in _metadata(source, normalise).items():
            program.model.metadata_props[key] = value
        program.save(folder / FILE, external_data=False)
    checked = _check(source, graph, folder / FILE, least)
    return Told("onnx", _load, _facts(source, normalise, least, checked), normalise)


def _load(place: str) -> str:
    return (
        "import onnxruntime\n"
        f"session = onnxruntime.InferenceSession({under(place, FILE)!r})\n"
        'features, patches = session.run(["cls", "patches"], {"images": images})'
    )


def _facts(source: Source, normalise: bool, least: int, checked: str) -> list[str]:
    said = source.described
    scale = "pixels from 0 to 1, normalised inside" if normalise else "normalised"
    return [
        f"ONNX operator set {OPSET}. Input `images`: float32 (batch, {said['channels']}, height, "
        f"width), {scale}. Any batch; any height and width, equal or not, of at least {least}.",
        f"Outputs: `cls` (batch, {source.encoder.dim}), the picture's features, and `patches` "
        f"(batch, patches, {source.encoder.dim}), row by row.",
        checked,
    ]


def _metadata(source: Source, normalise: bool) -> dict[str, str]:
    """Inside the file too, as strings: what to do to a picture before it goes in."""
    said = source.described
    kept = {key: json.dumps(said[key]) for key in ("mean", "std", "image_size", "resize")}
    return kept | dict(normalised_inside=json.dumps(normalise), encoder=json.dumps(said["encoder"]))


def _check(source: Source, graph: Graph, path: Path, least: int) -> str:
    """Runs the file where onnxruntime is installed, at sizes the recording has not seen."""
    if importlib.util.find_spec("onnxruntime") is None:
        return "Not run after writing: onnxruntime is not installed."
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    side, channels = source.described["image_size"], source.described["channels"]
    worst = 0.0
    for b, height, width in ((1, side, side), (3, 2 * least, 4 * least + 1)):
        images = torch.rand(b, channels, height, width)
        with torch.no_grad():
            tokens = source.encoder(graph.prepared(images))
        cls, patches = session.run(["cls", "patches"], {"images": images.numpy()})
        found = torch.cat([torch.from_numpy(cls)[:, None], torch.from_numpy(patches)], 1)
        worst = max(worst, float((tokens - found).abs().max()))
    if not worst <= TOLERANCE:
        raise Failure(
            f"--to onnx: onnxruntime {onnxruntime.__version__} computes features that are off by "
            f"{worst:.2g}; nothing was written. Please report this with `pip freeze`"
        )
    return (
        f"Run by onnxruntime {onnxruntime.__version__} after writing: features equal torch's to "
        f"{worst:.0e}."
    )


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """The exporter tells its steps in prints, warnings and logs; errors are raised all the same."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
