"""The training step written plainly, to be measured against: no trick, the same result.

An encoder pass for every resolution, a Python loop over heads with their own modules, a loss for
every pair of views, PyTorch's own AdamW and clipping, a loop for the moving average. It does
DINO*'s family alone: Sinkhorn targets, ``ent`` weights, plain heads.
"""

import copy
import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from wessl.bench.baseline_vit import cls_token
from wessl.config import Config, LossConfig
from wessl.encoder.conv import ConvNet
from wessl.encoder.vit import ViT
from wessl.ensemble.heads import EnsembleHeads, StackedLinear
from wessl.matrix_products import Linear
from wessl.pretrain.model import Model
from wessl.pretrain.schedules import Now
from wessl.pretrain.step import Views


class Head(nn.Module):
    """One projection and its codebook: representations ``(n, dim)`` to cosines ``(n, c)``."""

    def __init__(self, heads: EnsembleHeads, which: int):
        super().__init__()
        layers: list[nn.Module] = []
        for stacked in heads.projection:
            if not isinstance(stacked, StackedLinear):
                layers.append(nn.GELU())
                continue
            in_dim, out_dim = stacked.weight.shape[1:]
            layer = nn.Linear(in_dim, out_dim, device=stacked.weight.device)
            layer.weight.data.copy_(stacked.weight[which].T)
            layer.bias.data.copy_(stacked.bias[which])
            layers.append(layer)
        self.projection = nn.Sequential(*layers)
        self.codebook = nn.Parameter(heads.codebook[which].detach().clone())

    def forward(self, x: Tensor) -> Tensor:
        embedding = F.normalize(self.projection(x).float(), dim=-1)
        with torch.autocast(x.device.type, enabled=False):
            return embedding @ F.normalize(self.codebook, dim=-1).T


class Network(nn.Module):
    """Views of one size ``(n, ch, h, w)`` to the cosines ``(n, m, c)`` of all heads."""

    def __init__(self, encoder: nn.Module, heads: EnsembleHeads):
        super().__init__()
        self.encoder = copy.deepcopy(encoder)
        for layer in self.encoder.modules():
            if isinstance(layer, Linear):
                layer.__class__ = nn.Linear  # type: ignore[assignment]  # with PyTorch's own product
        self.heads = nn.ModuleList(Head(heads, i) for i in range(heads.num_heads))

    def forward(self, views: Tensor, drop: Tensor | None = None) -> Tensor:
        if isinstance(self.encoder, ViT):
            x = cls_token(self.encoder, views, drop)
        else:
            assert isinstance(self.encoder, ConvNet)
            x = of_conv(self.encoder, views)
        return torch.stack([head(x) for head in self.heads], 1)


def of_conv(encoder: ConvNet, images: Tensor) -> Tensor:
    """``encoder.cls(images)`` as one would write it."""
    cells = encoder.blocks(F.relu(encoder.norm(encoder.stem(images))))
    return encoder.read(F.adaptive_avg_pool2d(cells, encoder.grid).flatten(1))


class Baseline:
    """Student, teacher and optimiser as a new ``Trainer`` has them, from the same weights."""

    def __init__(self, config: Config, start: Model):
        refuse_others(config)
        self.config, self.device = config, start.heads.codebook.device
        self.student = Network(start.encoder, start.heads).train()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.teacher.encoder.eval()
        decayed = [p for p in self.student.parameters() if p.dim() > 1]
        plain = [p for p in self.student.parameters() if p.dim() <= 1]
        groups: list[dict[str, Any]] = [dict(params=decayed)]
        groups.append(dict(params=plain, weight_decay=0.0))
        self.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.999))

    def train_step(self, views: Views, now: Now) -> Tensor:
        half = self.config.precision == "bf16"
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=half):
            loss = self.loss(views, now)
        loss.backward()
        if self.config.optim.clip is not None:
            nn.utils.clip_grad_norm_(self.student.parameters(), self.config.optim.clip)
        decayed, plain = self.optimizer.param_groups
        decayed["lr"] = plain["lr"] = now.lr
        decayed["weight_decay"] = now.weight_decay
        self.optimizer.step()
        self.optimizer.zero_grad()
        with torch.no_grad():
            pairs = zip(self.teacher.parameters(), self.student.parameters(), strict=True)
            for old, new in pairs:
                old.mul_(now.momentum).add_(new, alpha=1 - now.momentum)
        return loss.detach()

    def loss(self, views: Views, now: Now) -> Tensor:
        """Mean over all pairs of a teacher's view and another of the student's."""
        with torch.no_grad():
            cosines = [c for seen in views.teacher for c in self.teacher(seen).split(views.n)]
            targets = sinkhorn(cosines, now.teacher_temperature)
        drops = views.drop or [None] * len(views.student)
        student = [
            s_nmc
            for seen, drop in zip(views.student, drops, strict=True)
            for s_nmc in self.student(seen, drop).split(views.n)
        ]
        losses = [
            pair_loss(s_nmc, targets[u], self.config.loss, now.gamma)
            for u, (v, s_nmc) in itertools.product(range(len(targets)), enumerate(student))
            if u != v
        ]
        return torch.stack(losses).mean()


def sinkhorn(cosines_unmc: list[Tensor], temperature: float) -> list[Tensor]:
    """Three rounds over the codes, then the pictures of all views; each head on its own."""
    together = torch.cat(cosines_unmc)
    of_heads = []
    for head in range(together.shape[1]):
        q = (together[:, head] / temperature).exp()
        for _ in range(3):
            q = q / q.sum(0, keepdim=True)
            q = q / q.sum(1, keepdim=True)
        of_heads.append(q)
    return list(torch.stack(of_heads, 1).split(len(cosines_unmc[0])))


def pair_loss(s_nmc: Tensor, t_nmc: Tensor, loss: LossConfig, gamma: float) -> Tensor:
    """The paper's Algorithm 2 for one pair of views: heads weighted by the teacher's certainty."""
    log_s = (s_nmc / loss.student_temperature).log_softmax(-1)
    entropy = torch.special.entr(t_nmc).sum(-1)
    weights = (-entropy / gamma).softmax(1)
    return (-(t_nmc * log_s).sum(-1) * weights).sum(1).mean()


def refuse_others(config: Config) -> None:
    heads, loss, optim = config.heads, config.loss, config.optim
    usual = (
        (heads.share, heads.batch_norm, heads.code_length, heads.follow_codebook)
        == (None, False, "one", False)
        and (loss.weighting, loss.target, loss.me_max, loss.mask) == ("ent", "sinkhorn", 0, 0)
        and (optim.clip_each, optim.accumulate, optim.freeze_codes_epochs) == (False, 1, 0)
        and config.views.roles[0] == "global"
    )
    if not usual:
        raise ValueError("the baseline does DINO*-ent with plain heads alone")
