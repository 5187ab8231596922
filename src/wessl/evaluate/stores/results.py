"""Results kept in the run folder, so that a command given again need not fit them again.

A file's name is a hash of all that makes a result: the encoder's tensors and how it sees pictures,
the decoded pictures and their labels, the protocol, the settings it reads and what computes it. It
holds the predictions too, so that intervals and differences to other encoders follow from it as
from a fit.
"""

import hashlib
import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch.distributed import ProcessGroup

from wessl.evaluate.features.passes import place_in
from wessl.evaluate.protocol import Result
from wessl.evaluate.stores.home import open_home
from wessl.files import write_whole

_FORMAT = 1


class ResultStore:
    """Results in `folder/features`; `None` keeps nothing, and `again` finds none of those kept.

    ::

        store = ResultStore(run.path)
        store.write(key, result)
        store.read({"k-NN": key})["k-NN"]["accuracy"]
    """

    def __init__(self, folder: Path | None, group: ProcessGroup | None = None, again: bool = False):
        self.home = open_home(folder, group)
        self.group, self.again = group, again

    def read(self, keys: Mapping[str, str]) -> dict[str, Result]:
        """By name, those that every process of the group finds whole."""
        found = {name: self._read(key) for name, key in keys.items()}
        missed = torch.tensor([result is None for result in found.values()], dtype=torch.uint8)
        if self.group is not None and len(missed):
            dist.all_reduce(missed, dist.ReduceOp.MAX, self.group)
        there = zip(found.items(), missed.tolist(), strict=True)
        return {name: result for (name, result), gone in there if result is not None and not gone}

    def _read(self, key: str) -> Result | None:
        if self.home is None or self.again:
            return None
        try:
            with safe_open(self._path(key), "pt") as file:
                said, predicted = file.metadata(), file.get_tensor("predicted")
            if said["sha256"] != _sha256(predicted, said["result"]):
                return None
            return json.loads(said["result"]) | dict(predicted=predicted)
        except (OSError, SafetensorError, LookupError, TypeError, ValueError):  # absent or damaged
            return None

    def write(self, key: str, result: Result) -> None:
        if self.home is None or place_in(self.group)[0] > 0:
            return
        predicted = result["predicted"].cpu().long().contiguous()
        words = json.dumps({name: value for name, value in result.items() if name != "predicted"})
        said = dict(result=words, sha256=_sha256(predicted, words))
        try:
            self.home.mkdir(parents=True, exist_ok=True)
            write_whole(
                self._path(key), lambda path: save_file({"predicted": predicted}, path, said)
            )
        except OSError as error:
            warnings.warn(f"results will be fitted again next time: {error}", stacklevel=2)

    def _path(self, key: str) -> Path:
        assert self.home is not None
        return self.home / f"result-{key}.safetensors"


def result_key(**made_of: Any) -> str:
    """32 digits, from plain values.

    >>> result_key(protocol="k-NN", seed=0) == result_key(seed=0, protocol="k-NN")
    True
    >>> result_key(protocol="k-NN", seed=0) == result_key(protocol="k-NN", seed=1)
    False
    """
    words = json.dumps(dict(format=_FORMAT) | made_of, sort_keys=True)
    return hashlib.sha256(words.encode()).hexdigest()[:32]


def _sha256(predicted: torch.Tensor, words: str) -> str:
    digest = hashlib.sha256(words.encode())
    digest.update(f"{tuple(predicted.shape)}".encode())
    digest.update(predicted.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()
