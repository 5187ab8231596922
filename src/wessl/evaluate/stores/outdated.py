"""Which of the features kept in a run folder nothing can read any more.

A file's name changes with all that makes its features, so another encoder, code or torch leaves the
old file behind. It is dropped when new features are kept in its stead, and only where that is sure:

- The folder's encoder, teacher or student, has other weights now.
- The installation that computed it, on this machine and in this place, is another one now.

What another machine, installation or kind of device computed stays, as they may ask for it again;
so do features of other pictures, which are known by their pixels and may lie anywhere.
"""

import contextlib
import json
import platform
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from wessl.evaluate.features.trained_encoder import TrainedEncoder
from wessl.files import sha256_of

State = dict[str, Any]
DAMAGED = (OSError, SafetensorError, LookupError, TypeError, ValueError)


def about(encoder: TrainedEncoder, made_of: State) -> dict[str, str]:
    """What a file says of itself, so that it is known when it is outdated."""
    purpose = {name: made_of[name] for name in ("pictures", "transform", "crop", "reading")}
    purpose |= dict(
        precision=made_of["precision"],
        devices=made_of["computed_by"]["devices"],
        network=encoder.description.get("network"),
    )
    place = [platform.node(), str(Path(__file__).parents[2]), str(Path(torch.__file__).parent)]
    return dict(purpose=sha256_of(purpose), weights=made_of["weights"], place=sha256_of(place))


def read_about(path: Path) -> State:
    with safe_open(path, "pt") as file:
        return json.loads(file.metadata()["about"])


def drop_outdated(path: Path, since: float) -> None:
    """Removes what the features at `path` replace.

    But nothing written later than `since`, when their encoder was read: another command that runs
    at the same time may have read a newer one.
    """
    new = read_about(path)
    for other in path.parent.glob("*.safetensors"):
        with contextlib.suppress(*DAMAGED):  # a result, of a version that told nothing, or gone
            old = read_about(other)
            gone = old["weights"] != new["weights"] or old["place"] == new["place"]
            same = other != path and old["purpose"] == new["purpose"]
            if same and gone and other.stat().st_mtime < since:
                other.unlink()
