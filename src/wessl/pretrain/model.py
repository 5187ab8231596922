"""An encoder with its heads: what student and teacher both are, and how a config becomes one."""

import copy

import torch
from torch import Tensor, nn

from wessl.config import Config
from wessl.encoder.mimetic import mimetic_
from wessl.encoder.protocol import Encoder
from wessl.encoder.vit import ViT
from wessl.ensemble.heads import EnsembleHeads
from wessl.errors import UserError
from wessl.run import build_encoder


class Model(nn.Module):
    """Views of ``n`` pictures in, cosines ``(V, M, N, C)`` out."""

    def __init__(self, encoder: nn.Module, heads: EnsembleHeads):
        super().__init__()
        self.encoder, self.heads = encoder, heads

    def represent(
        self,
        views: list[Tensor],
        keep: list[Tensor | None] | None = None,
        drop: list[Tensor | None] | None = None,
    ) -> Tensor:
        """``[CLS]`` of every view, ``(V n, dim)``, view-major. Only a ViT drops tokens or paths."""
        if isinstance(self.encoder, ViT):
            return torch.cat(self.encoder.cls(views, keep, drop))
        encoder: Encoder = self.encoder  # type: ignore[assignment]
        return torch.cat([encoder.cls(view) for view in views])

    def score(self, representations: Tensor, n: int) -> Tensor:
        return self.heads(representations).unflatten(1, (-1, n)).transpose(0, 1)


def build_model(config: Config) -> Model:
    """The student at its start, which depends on nothing but the config."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        encoder = build_encoder(config.encoder, config.channels)
        if config.encoder.start == "mimetic" and isinstance(encoder, ViT):
            mimetic_(encoder)
        # Last, so that the encoder starts alike however many heads it has.
        heads = EnsembleHeads(
            encoder.dim,  # type: ignore[arg-type]
            config.heads.count,
            config.heads.hidden_dim,
            config.heads.depth,
            config.heads.embed_dim,
            config.heads.codes,
            config.heads.share,
            config.heads.batch_norm,
            weight_norm=config.heads.code_length != "one",
        )
    if config.heads.code_length == "fixed" and heads.code_length is not None:
        heads.code_length.requires_grad_(False)
    return Model(encoder, heads)


def teacher_of(student: Model) -> Model:
    """A copy that never gets a gradient and computes without drop-path.

    Its heads stay in training mode: MSN's batch norm normalises the teacher by its own batch too.
    """
    teacher = copy.deepcopy(student).requires_grad_(False)
    teacher.encoder.eval()
    return teacher


def load_strictly(encoder: nn.Module, weights: dict[str, Tensor]) -> None:
    """Loads given encoder weights, all of them and nothing else, or says exactly what differs."""
    refuse_misfit(encoder, weights)
    encoder.load_state_dict(weights)


def refuse_misfit(encoder: nn.Module, weights: dict[str, Tensor]) -> None:
    own = encoder.state_dict()
    missing, extra = sorted(own.keys() - weights), sorted(weights.keys() - own.keys())
    shapes = [
        f"{name} is {tuple(weights[name].shape)}, not {tuple(own[name].shape)}"
        for name in own.keys() & weights
        if weights[name].shape != own[name].shape
    ]
    if missing or extra or shapes:
        parts = [f"missing {missing[:5]}"] * bool(missing) + [f"unknown {extra[:5]}"] * bool(extra)
        raise UserError(
            f"--init does not fit this encoder: {'; '.join(parts + sorted(shapes)[:5])}. "
            "Choose the encoder these weights belong to (--encoder.size, --encoder.patch-size)"
        )
