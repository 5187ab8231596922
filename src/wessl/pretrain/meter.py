"""What is counted on the device between two lines of the log, fetched once a line."""

import math
from typing import Any

import torch
from torch import Tensor

from wessl.config import Config
from wessl.ensemble.weighting import as_scheme, as_temperature, compact_weights, entropy
from wessl.pretrain.parallel import ALONE, Team


class Meter:
    """Sums over the steps since the last line. ``add`` never waits for the device."""

    def __init__(self, config: Config, device: torch.device):
        m, c = config.heads.count, config.heads.codes
        self.config, self.steps = config, 0
        self.sums = torch.zeros(4, device=device)  # cross-entropy, me-max, loss, gradient norm
        self.entropies = torch.zeros(m, device=device)
        self.used = torch.zeros(m, c, dtype=torch.bool, device=device)
        self.skipped = torch.zeros((), dtype=torch.int64, device=device)
        self.last_bad = torch.zeros((), dtype=torch.int64, device=device)

    @torch.no_grad()
    def add(
        self,
        step: int,
        parts: Tensor,
        loss: Tensor,
        norm: Tensor,
        finite: Tensor,
        targets_umnc: Tensor,
        chosen_umn: Tensor,
    ) -> None:
        self.steps += 1
        row = torch.cat([parts, torch.stack([loss.detach(), norm])]).float()
        self.sums += torch.where(finite, row, 0.0)
        self.skipped += ~finite
        self.last_bad = torch.where(finite, self.last_bad, step)
        entropies = torch.special.entr(targets_umnc).sum(-1).mean((0, 2))
        self.entropies += torch.where(finite, entropies, 0.0)
        chosen = chosen_umn.transpose(0, 1).flatten(1)
        self.used |= torch.zeros_like(self.used).scatter_(1, chosen, True) & finite

    def read(
        self, gamma: float, targets_umnc: Tensor, representations: Tensor, team: Team = ALONE
    ) -> dict[str, object]:
        """The averages since the last call, as plain numbers; starts anew.

        Skipped steps count for nothing: without a good step the averages are NaN. What ``add`` was
        given of the whole batch already (``sums``) stays; the rest is brought together here.
        """
        good = self.steps - int(self.skipped)
        cross_entropy, me_max, loss, norm = (self.sums / good).tolist()
        shares, effective = head_weights(self.config, gamma, targets_umnc)
        *shares, effective = team.mean(torch.tensor([*shares, effective])).tolist()
        entropies, used = team.mean(self.entropies), team.any(self.used)
        row: dict[str, object] = dict(
            loss=loss,
            cross_entropy=cross_entropy,
            me_max=me_max,
            grad_norm=norm,
            teacher_entropy=float(entropies.mean() / good),
            teacher_entropy_heads=(entropies / good).tolist(),
            codes=self.config.heads.codes,
            codes_used=used.sum(1).tolist(),
            pictures_seen=good * self.config.optim.batch_size,
            head_shares=shares,
            heads_effective=effective,
            rank=effective_rank(team.gather_pictures(representations, len(targets_umnc))),
            skipped_steps=int(self.skipped),
        )
        self.steps = 0
        for tensor in (self.sums, self.entropies, self.used, self.skipped):
            tensor.zero_()
        return row

    def state(self, team: Team = ALONE) -> dict[str, object]:
        """What a run that goes on from here must not have forgotten: the same in every process."""
        return dict(
            steps=self.steps,
            sums=self.sums.clone(),
            entropies=team.mean(self.entropies).clone(),
            used=team.any(self.used).clone(),
            skipped=self.skipped.clone(),
            last_bad=self.last_bad.clone(),
        )

    def load_state(self, state: dict[str, Any]) -> None:
        self.steps = state["steps"]
        for name in ("sums", "entropies", "used", "skipped", "last_bad"):
            getattr(self, name).copy_(state[name])


@torch.no_grad()
def head_weights(config: Config, gamma: float, targets_umnc: Tensor) -> tuple[list[float], float]:
    """Each head's mean weight over pictures, and how many heads a picture's weight amounts to.

    For weightings that read the student the teacher stands in for it: the line needs no more. Who
    learns, and exactly, ``wessl.head_shares`` tells.
    """
    m = config.heads.count
    scheme = as_scheme(config.loss.weighting)
    log_pt_nmc = targets_umnc[0].transpose(0, 1).log()
    temperature = as_temperature(scheme, gamma, config.heads.codes)
    weights_nij = compact_weights(scheme, temperature, log_pt_nmc, log_pt_nmc).mean(3)
    # Of the head that teaches, or of the one that learns where the score does not tell teachers.
    of_head = weights_nij.sum(2 if weights_nij.shape[1] == m else 1).expand(-1, m)
    of_head = of_head / of_head.sum(1, keepdim=True)
    effective = float(entropy(of_head.log()).exp().mean())
    return of_head.mean(0).tolist(), effective


@torch.no_grad()
def effective_rank(representations: Tensor, most: int = 512) -> float:
    """``exp(H[singular values])`` of up to ``most`` centred representations; NaN if they are."""
    x = representations[:most].float()
    if not bool(x.isfinite().all()):
        return math.nan
    values = torch.linalg.svdvals(x - x.mean(0))
    shares = values / values.sum().clamp_min(1e-12)
    return float(torch.special.entr(shares).sum().exp())
