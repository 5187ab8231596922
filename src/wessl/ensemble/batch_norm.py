"""Batch normalisation by the statistics of all processes' images."""

import torch
from torch import Tensor, nn

from wessl.ensemble.collective import Group, all_sum


class GroupBatchNorm(nn.BatchNorm1d):
    """``nn.BatchNorm1d`` of ``(n, d)``, mean and variance taken over the images of a whole group.

    Parameters, buffers and their names are those of the layer it takes the place of. Unlike torch's
    own synchronised one it runs on a CPU too, so that what is tested is what trains.
    """

    group: Group

    @classmethod
    def in_place_of(cls, norm: nn.BatchNorm1d, group: Group) -> "GroupBatchNorm":
        own = cls(norm.num_features, norm.eps, norm.momentum)
        own._parameters, own._buffers = norm._parameters, norm._buffers
        own.group = group
        return own.train(norm.training)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        wide = x.float() if x.dtype in (torch.bfloat16, torch.float16) else x
        count = all_sum(wide.new_tensor(float(len(x))), self.group)
        mean = all_sum(wide.sum(0), self.group) / count
        variance = all_sum((wide - mean).square().sum(0), self.group) / count
        self._remember(mean.detach(), variance.detach() * count / (count - 1).clamp_min(1))
        scaled = (wide - mean) * torch.rsqrt(variance + self.eps)
        return torch.addcmul(self.bias, scaled, self.weight).to(x.dtype)

    @torch.no_grad()
    def _remember(self, mean: Tensor, variance: Tensor) -> None:
        momentum = 0.1 if self.momentum is None else self.momentum
        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(1)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_(variance.to(self.running_var.dtype), momentum)


def use_group_statistics(module: nn.Module, group: Group) -> None:
    """Every batch norm in ``module`` is of the group's whole batch from now on."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.BatchNorm1d:
                setattr(parent, name, GroupBatchNorm.in_place_of(child, group))
