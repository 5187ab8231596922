"""Linear classifiers for many learning rates, trained side by side by SGD on the same batches.

Shapes: `n` pictures of a batch, `d` features, `r` learning rates, `c` classes.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from wessl.evaluate.classifiers.knn import full_precision

_LOGITS = 1 << 26  # entries of (n, r, c) held at once: 256 MiB of float32


class Scores(NamedTuple):
    """How each learning rate's classifier did on some pictures."""

    accuracy: Tensor  # (r,)
    loss: Tensor  # (r,) mean cross-entropy
    predicted: Tensor  # (n, r) classes


class LinearGrid:
    """Softmax classifiers `x W + b` on one kind of features, one for each learning rate.

    All start at zero. The classifiers share their inputs, so their weights stand side by side and a
    step is two matrix products, however many learning rates there are. The gradient of the mean
    cross-entropy is explicit: `x' (softmax(x W + b) - onehot) / n`.
    """

    def __init__(
        self,
        dim: int,
        classes: int,
        lrs: Sequence[float],
        device: str | torch.device = "cpu",
        momentum: float = 0.9,
    ):
        self.lrs = torch.tensor(lrs, device=device)
        self.momentum = momentum
        self.weight = torch.zeros(dim, len(lrs), classes, device=device)
        self.bias = torch.zeros(len(lrs), classes, device=device)
        self._speeds = torch.zeros_like(self.weight), torch.zeros_like(self.bias)

    @torch.no_grad()
    def step(self, x_nd: Tensor, target_n: Tensor, scale: float) -> None:
        """One step of SGD with Nesterov momentum at `scale` times each learning rate."""
        weight, bias = torch.zeros_like(self.weight), torch.zeros_like(self.bias)
        with full_precision(x_nd.device):
            for x, target in self._parts(x_nd, target_n):
                residual = _softmax_(self.logits(x))
                chosen = target[:, None, None].expand(-1, len(self.lrs), 1)
                residual.scatter_add_(2, chosen, residual.new_full((), -1.0).expand(chosen.shape))
                weight.flatten(1).addmm_(x.T, residual.flatten(1))
                bias += residual.sum(0)
        rate = (self.lrs * scale)[:, None]
        values, gradients = (self.weight, self.bias), (weight, bias)
        for value, speed, gradient in zip(values, self._speeds, gradients, strict=True):
            speed.mul_(self.momentum).add_(gradient.div_(len(x_nd)))
            value.sub_(gradient.add_(speed, alpha=self.momentum).mul_(rate))

    def logits(self, x_nd: Tensor) -> Tensor:
        """`(n, r, c)`."""
        flat = torch.addmm(self.bias.flatten(), x_nd, self.weight.flatten(1))
        return flat.unflatten(1, self.bias.shape)

    @torch.no_grad()
    def score(self, x_nd: Tensor, target_n: Tensor) -> Scores:
        """A target of -1 is a class none of the classifiers knows: wrong, and not in the loss."""
        predicted, loss = [], torch.zeros_like(self.lrs, dtype=torch.float64)
        with full_precision(self.weight.device):
            for x, target in self._parts(x_nd, target_n):
                logits = self.logits(x)
                predicted.append(logits.argmax(2))
                each = target[:, None].expand(-1, len(self.lrs))
                loss += F.cross_entropy(
                    logits.transpose(1, 2), each, ignore_index=-1, reduction="none"
                ).sum(0, dtype=torch.float64)
        found = torch.cat(predicted)
        target = target_n.to(found.device)
        right = (found == target[:, None]).double().mean(0)
        return Scores(right, loss / (target >= 0).sum().clamp(min=1), found)

    def _parts(self, x_nd: Tensor, target_n: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        rows = max(1, _LOGITS // self.bias.numel())
        for start in range(0, len(x_nd), rows):
            part = slice(start, start + rows)
            yield x_nd[part].to(self.weight), target_n[part].to(self.weight.device)


def _softmax_(logits_nrc: Tensor) -> Tensor:
    """In place; on a CPU torch's own takes twice as long for ten classes."""
    logits_nrc.sub_(logits_nrc.amax(2, keepdim=True)).exp_()
    return logits_nrc.div_(logits_nrc.sum(2, keepdim=True))
