"""Run folders: the one place that knows their layout.

::

    RUN/config.json           everything that made the run, resolved, with versions and command
    RUN/metrics.jsonl         one line of numbers every so many steps
    RUN/train.log             what was printed, and more
    RUN/checkpoints/          the last few states, each with its checksum
    RUN/encoder.safetensors   the teacher encoder, and encoder.json which says what it is
    RUN/results/*.json        measurements, each with its protocol
    RUN/track.json            with --track: whom of it was told what; tensorboard/, wandb/ theirs

A reader never sees half a file: see ``files.py``.
"""

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from wessl.errors import Busy, Failure, UserError
from wessl.files import FULL, sha256, try_lock, write_json, write_tensors, write_whole

State = dict[str, Any]


class Run:
    """A run folder.

    >>> import tempfile
    >>> run = Run.create(tempfile.mkdtemp() + "/run", {"config": {"seed": 0}})
    >>> run.read_config()["config"]
    {'seed': 0}
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    @classmethod
    def create(cls, path: str | Path, header: State) -> "Run":
        run = cls(path)
        with run._writable():
            run.checkpoints.mkdir(parents=True, exist_ok=True)
            # Of a run that was stopped before its first checkpoint, perhaps of other settings.
            (run.path / "metrics.jsonl").unlink(missing_ok=True)
            write_json(run.path / "config.json", header)
        return run

    @contextlib.contextmanager
    def _writable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            kind = Failure if error.errno in FULL else UserError
            raise kind(
                f"--out {self.path}: cannot be written ({error.strerror or error})"
            ) from error

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def results(self) -> Path:
        return self.path / "results"

    @property
    def exists(self) -> bool:
        return (self.path / "config.json").exists()

    def read_config(self) -> State:
        path = self.path / "config.json"
        try:
            return json.loads(path.read_text())
        except FileNotFoundError:
            raise UserError(self._unfinished()) from None
        except ValueError as error:  # not JSON, or not even text
            raise UserError(f"{path} is damaged ({error}); restore it or use a new --out") from None

    def log(self, line: str) -> None:
        # A full disk is said by whoever needs the space; it must not stop the run from here.
        with contextlib.suppress(OSError), (self.path / "train.log").open("a") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {line}\n")

    def add_metrics(self, row: State) -> None:
        with (self.path / "metrics.jsonl").open("a+b") as file:
            # A line that a kill cut short must not swallow the one after it.
            file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
            cut = file.read(1) not in (b"", b"\n")
            file.write(b"\n" * cut + json.dumps(_strict(row)).encode() + b"\n")

    def read_metrics(self) -> list[State]:
        """All rows; of a step written twice (before and after a kill) the later row counts."""
        path = self.path / "metrics.jsonl"
        rows = {}
        for line in path.read_bytes().splitlines() if path.exists() else ():
            try:
                row = json.loads(line)
            except ValueError:
                continue  # the line a kill cut short; its step was written again
            rows[(row.get("step"), "probe" in row)] = row
        return sorted(rows.values(), key=lambda row: row["step"])

    def save_checkpoint(self, step: int, state: State, keep: int) -> Path:
        """Writes ``step-N.pt`` with its checksum, then removes all but the last ``keep``."""
        path = self.checkpoints / f"step-{step:09d}.pt"
        for left_by_a_kill in self.checkpoints.glob(".step-*.tmp"):
            left_by_a_kill.unlink()
        try:
            write_tensors(path, state)
        except OSError as error:
            if error.errno not in FULL or not self.keep_newest_checkpoint():
                raise
            write_tensors(path, state)
        write_json(path.with_suffix(".json"), {"step": step, "sha256": sha256(path)})
        # A checkpoint of a later step is one that was damaged and passed over.
        known = sorted(self.checkpoints.glob("step-*.pt"))
        kept = [old for old in known if old <= path][-max(1, keep) :]
        for old in (old for old in known if old not in kept):
            self._remove(old)
        return path

    def keep_newest_checkpoint(self) -> bool:
        """Gives up all whole ones but that: of a finished run, or for a disk that holds no more."""
        whole = [path for path in sorted(self.checkpoints.glob("step-*.pt")) if not damage(path)]
        for old in whole[:-1]:
            self._remove(old)
        return len(whole) > 1

    @staticmethod
    def _remove(checkpoint: Path) -> None:
        checkpoint.with_suffix(".json").unlink(missing_ok=True)
        checkpoint.unlink()

    def load_checkpoint(
        self, device: str | torch.device = "cpu", say: Callable[[str], None] | None = None
    ) -> State | None:
        """The newest whole checkpoint, or None; damaged ones are passed over and said or logged."""
        for path in sorted(self.checkpoints.glob("step-*.pt"), reverse=True):
            problem = damage(path)
            if problem is None:
                return torch.load(path, map_location=device, weights_only=True)
            (say or self.log)(f"checkpoint {path.name} passed over: {problem}")
        return None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """For one process at a time; the lock dies with it, however that ends."""
        with self._writable():
            self.path.mkdir(parents=True, exist_ok=True)
            lock = (self.path / ".lock").open("a+")
        with lock as file:
            tries = 10  # whoever asks whether it is busy holds it for an instant
            while not try_lock(file):
                tries -= 1
                if tries == 0:
                    file.seek(0)
                    holder = file.read().strip()
                    raise Busy(f"{self.path} is being trained by process {holder}")
                time.sleep(0.02)
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
            yield

    @property
    def busy(self) -> bool:
        """Whether a process is training it now."""
        with contextlib.suppress(OSError), (self.path / ".lock").open() as file:
            return not try_lock(file, shared=True)  # for an instant, if it is free
        return False

    def save_encoder(self, state: dict[str, Tensor], description: State) -> None:
        """The encoder's weights under timm's names, and what is needed to use them."""
        tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
        path = self.path / "encoder.safetensors"
        write_whole(path, lambda temporary: save_file(tensors, temporary))
        write_json(self.path / "encoder.json", description)

    def load_encoder(self) -> tuple[dict[str, Tensor], State]:
        weights, description = self.path / "encoder.safetensors", self.path / "encoder.json"
        if not weights.exists() or not description.exists():
            raise UserError(self._unfinished())
        return load_file(weights), json.loads(description.read_text())

    def _unfinished(self) -> str:
        if not self.exists:
            return (
                f"{self.path} is no run folder; train one first: "
                "wessl pretrain PICTURES --out RUN, then give RUN"
            )
        rows = self.read_metrics()
        at = f" (step {rows[-1]['step']} is the last in its metrics)" if rows else ""
        saved = sorted(self.checkpoints.glob("step-*.pt"))
        meanwhile = f"; until then {saved[-1]} will do in its place" if saved else ""
        return (
            f"{self.path} holds no finished encoder{at}; "
            f"the `wessl pretrain` command that began it goes on and finishes it{meanwhile}"
        )

    def save_result(self, name: str, result: State) -> Path:
        self.results.mkdir(exist_ok=True)
        path = self.results / f"{name}.json"
        write_json(path, result)
        return path

    def read_results(self) -> Iterator[tuple[str, State]]:
        for path in sorted(self.results.glob("*.json")) if self.results.exists() else ():
            yield path.stem, json.loads(path.read_text())


def _strict(value: Any) -> Any:
    """NaN and infinities as null, which every reader of JSON understands."""
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def damage(checkpoint: Path) -> str | None:
    """Why a checkpoint cannot be trusted, or None."""
    try:
        recorded = json.loads(checkpoint.with_suffix(".json").read_text())
        known = recorded["sha256"]
    except FileNotFoundError:
        return "its checksum is missing: the run was stopped while writing it"
    except (ValueError, LookupError, TypeError):
        return "its checksum is damaged"
    if known != sha256(checkpoint):
        return "its contents do not match its checksum"
    return None
