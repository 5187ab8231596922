"""From teacher logits to targets that do not collapse, and the student's term that helps.

Logits here are the heads' cosines ``(m, n, c)``; every head is treated on its own, all at once.
"""

import math

import torch
from torch import Tensor, nn

from wessl.ensemble.checks import at_least_fp32, can_look, positive
from wessl.ensemble.collective import Group, all_logsumexp, all_mean


def sharpen(logits: Tensor, temperature: float | Tensor) -> Tensor:
    """Plain softmax at a low temperature: all that MSN* does to its teacher.

    >>> sharpen(torch.zeros(1, 2, 4), temperature=0.025)
    tensor([[[0.2500, 0.2500, 0.2500, 0.2500],
             [0.2500, 0.2500, 0.2500, 0.2500]]])
    """
    logits = _check(logits, "logits")
    return (logits / positive(temperature)).softmax(-1)


@torch.no_grad()
def sinkhorn(
    logits: Tensor,
    temperature: float | Tensor,
    iterations: int = 3,
    group: Group | None = None,
    log: bool = False,
) -> Tensor:
    """Sinkhorn-Knopp: targets whose codes are used equally over the batch.

    Starts from ``exp(logits / temperature)`` and alternately scales every code to the same total
    over the batch and every image to 1; the images come last, so each row is a distribution. In
    log space, finite at any temperature. With a process ``group`` the batch is that of all
    processes. Returns probabilities ``(m, n, c)``, or their logarithm.

    >>> targets = sinkhorn(torch.randn(16, 64, 32), temperature=0.05)
    >>> bool(torch.allclose(targets.sum(-1), torch.ones(16, 64)))
    True
    """
    if iterations < 1:
        raise ValueError(f"iterations must be at least 1, got {iterations}")
    scores = _check(logits, "logits") / positive(temperature)
    # Only the two potentials change between iterations; the scores are read, never rewritten.
    of_image = scores.new_zeros(scores.shape[0], scores.shape[1], 1)
    for _ in range(iterations):
        of_code = all_logsumexp(scores - of_image, group)
        of_image = (scores - of_code).logsumexp(2, keepdim=True)
    log_targets = scores - of_code - of_image
    return log_targets if log else log_targets.exp()


class Centering(nn.Module):
    """DINO's anti-collapse: subtract a running mean of the teacher logits, then sharpen.

    The centre is updated after use (in training mode), with the mean over all images given and,
    with a process ``group``, over all processes.

    >>> centering = Centering(num_heads=1, num_codes=32)
    >>> targets = centering(torch.randn(1, 64, 32), temperature=0.04)
    """

    center: Tensor

    def __init__(self, num_heads: int, num_codes: int, momentum: float = 0.9):
        super().__init__()
        if not 0 <= momentum <= 1:
            raise ValueError(f"momentum must lie in [0, 1], got {momentum}")
        self.momentum = momentum
        self.register_buffer("center", torch.zeros(num_heads, 1, num_codes))

    @torch.no_grad()
    def forward(
        self, logits: Tensor, temperature: float | Tensor, group: Group | None = None
    ) -> Tensor:
        logits = _check(logits, "logits")
        if logits.shape[::2] != self.center.shape[::2]:
            raise ValueError(
                f"logits {tuple(logits.shape)} do not fit a centre of "
                f"{self.center.shape[0]} heads and {self.center.shape[2]} codes"
            )
        targets = sharpen(logits - self.center, temperature)
        if self.training:
            mean = all_mean(logits, group)[:, None]
            self.center.lerp_(mean.to(self.center.dtype), 1 - self.momentum)
        return targets


def me_max(
    probabilities: Tensor,
    prior: Tensor | None = None,
    group: Group | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Mean-entropy maximisation, as a term to add: ``KL[mean_n p, prior]``, mean over heads.

    With the uniform prior (the default) it is ``ln c - H[mean_n p] >= 0``, zero when the batch uses
    all codes equally. ``probabilities`` are the student's, ``(m, n, c)``; ``prior`` is ``(c,)`` or
    ``(m, c)``. With ``weights (m,)`` the mean over heads is weighted: give each head's share of the
    loss (``head_shares``), or one that learns more than others is held less than they are. With a
    process ``group`` the mean over images runs over all processes, gradient included.

    >>> me_max(torch.eye(4)[None])                       # four images, each its own code
    tensor(0.)
    """
    mean_mc = all_mean(_check(probabilities, "probabilities"), group)
    log_mean = mean_mc.clamp_min(torch.finfo(mean_mc.dtype).tiny).log()
    if prior is None:
        uneven_m, whole = (mean_mc * log_mean).sum(-1), math.log(mean_mc.shape[-1])
    else:
        prior = _check_prior(prior.to(mean_mc), mean_mc)
        uneven_m, whole = (mean_mc * (log_mean - prior.log())).sum(-1), 0.0
    if weights is None:
        return whole + uneven_m.mean()
    weights = _check_weights(weights.detach().to(uneven_m), len(uneven_m))
    return whole + (weights / weights.sum() * uneven_m).sum()


def _check(x_mnc: Tensor, what: str) -> Tensor:
    if x_mnc.dim() != 3 or 0 in x_mnc.shape:
        raise ValueError(f"{what} must be (m, n, c) and not empty, got {tuple(x_mnc.shape)}")
    return at_least_fp32(x_mnc)


def _check_weights(weights: Tensor, m: int) -> Tensor:
    if weights.shape != (m,):
        raise ValueError(f"weights must be ({m},), got {tuple(weights.shape)}")
    if can_look(weights) and bool(
        (weights < 0).any() | (weights == 0).all()
    ):  # NaN is the caller's to see
        raise ValueError("weights must not be negative, nor all of them 0")
    return weights


def _check_prior(prior: Tensor, mean_mc: Tensor) -> Tensor:
    m, c = mean_mc.shape
    if prior.shape not in (torch.Size([c]), torch.Size([m, c])):
        raise ValueError(f"prior must be ({c},) or ({m}, {c}), got {tuple(prior.shape)}")
    if not bool((prior > 0).all()):
        raise ValueError("prior must be positive for every code")
    return prior / prior.sum(-1, keepdim=True)
