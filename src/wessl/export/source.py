"""What is exported: an encoder, and what its run folder tells of it."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from wessl.encoder.vit import ViT
from wessl.errors import UserError
from wessl.evaluate.features.trained_encoder import TrainedEncoder, load
from wessl.run import Run
from wessl.run.findings import findings, read_log

State = dict[str, Any]


@dataclass(frozen=True)
class Source:
    path: Path
    encoder: TrainedEncoder
    header: State = field(default_factory=dict)
    """The run's ``config.json``; empty for a file of weights, whose training is not known."""
    results: list[tuple[str, State]] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    """What the run found wrong with itself, as far as it lasted to the end."""

    @property
    def described(self) -> State:
        return self.encoder.description

    @property
    def weights(self) -> dict[str, Tensor]:
        """Under timm's names, each tensor with memory of its own."""
        return {n: t.detach().cpu().clone() for n, t in self.encoder.encoder.state_dict().items()}

    @property
    def positions_for(self) -> int:
        """The side of the pictures that a ViT's position embeddings are made for."""
        return int(self.described["encoder"]["image_size"])

    def vit(self, to: str) -> ViT:
        """The encoder, if it is what others call a ViT."""
        encoder = self.encoder.encoder
        if isinstance(encoder, ViT):
            return encoder
        raise UserError(
            f"--to {to}: {self.path} holds our own {type(encoder).__name__}, which {to} has no "
            "model for; use --to onnx, which takes every encoder, or train a transformer with "
            "`wessl pretrain --encoder.kind vit`"
        )


def read_source(path: str | Path) -> Source:
    """A run folder with a finished encoder, or a file of weights."""
    path = Path(path)
    if not path.exists():
        raise UserError(f"{path} does not exist; give a run folder of `wessl pretrain`")
    run = Run(path)
    header = run.read_config() if path.is_dir() else {}
    encoder = load(path)
    broken = [
        name for name, t in encoder.encoder.state_dict().items() if not torch.isfinite(t).all()
    ]
    if broken:
        raise UserError(f"{path}: its encoder has numbers that are not finite, in {broken[0]}")
    troubles = [f.words for f in findings(read_log(path)) if f.spoils] if path.is_dir() else []
    return Source(path, encoder, header, *_results(run), troubles)


def _results(run: Run) -> tuple[list[tuple[str, State]], list[str]]:
    """What can be read; a damaged result costs its own line of the card, not the export."""
    found, unreadable = [], []
    for path in sorted(run.results.glob("*.json")) if run.results.is_dir() else ():
        try:
            value = json.loads(path.read_text())
        except (OSError, ValueError):
            unreadable.append(path.name)
            continue
        if isinstance(value, dict):
            found.append((path.name, value))
    return found, unreadable
