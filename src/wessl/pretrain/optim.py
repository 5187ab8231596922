"""AdamW with DINO's decay groups, gradient clipping, and the teacher's moving average.

Nothing here waits for the device: a step with NaN or infinite gradients is skipped there.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from wessl.config import OptimConfig
from wessl.ensemble.collective import Group, all_sum
from wessl.pretrain.model import Model
from wessl.pretrain.schedules import Now


def is_decayed(name: str, parameter: nn.Parameter, decay_codes: bool) -> bool:
    """Everything but biases and vectors; stacked heads hold a vector a head, so shapes mislead."""
    if name in ("heads.codebook", "heads.code_length"):  # DINO's length is a matrix of one column
        return decay_codes
    if name.startswith("heads."):
        return name.endswith("weight") and parameter.dim() == 3
    return parameter.dim() > 1 and not name.endswith("bias")


def build_optimizer(student: Model, optim: OptimConfig) -> torch.optim.AdamW:
    named = [(n, p) for n, p in student.named_parameters() if p.requires_grad]
    decayed = [p for n, p in named if is_decayed(n, p, optim.decay_codes)]
    plain = [p for n, p in named if not is_decayed(n, p, optim.decay_codes)]
    groups = [
        dict(params=decayed, decay=True),
        dict(params=plain, decay=False, weight_decay=0.0),
    ]
    # lr as a tensor: a new value each step must not be a new constant of a compiled step.
    return torch.optim.AdamW(groups, lr=torch.tensor(0.0), betas=(0.9, 0.999), fused=True)


def set_schedule(optimizer: torch.optim.AdamW, now: Now) -> None:
    for group in optimizer.param_groups:
        group["lr"].fill_(now.lr)
        group["weight_decay"] = now.weight_decay if group["decay"] else 0.0


@torch.no_grad()
def clip_gradients(
    parameters: list[nn.Parameter],
    clip: float | None,
    each: bool,
    exempt: Sequence[nn.Parameter] = (),
    group: Group | None = None,
) -> Tensor:
    """Scales gradients down to norm ``clip``, all together or each alone; returns their norm.

    Those of ``exempt`` parameters stay as they are and count for the returned norm alone. With a
    ``group`` each process holds a shard of every gradient.
    """
    ids = {id(p) for p in exempt}
    held = [local(p.grad) for p in parameters if p.grad is not None and id(p) not in ids]
    free = [local(p.grad) for p in parameters if p.grad is not None and id(p) in ids]
    norms = torch._foreach_norm(held + free)
    if group is not None:
        norms = all_sum(torch.stack(norms).square(), group).sqrt().unbind()
    total = torch.stack(norms).norm()
    if clip is None or not held:
        return total
    of_held = norms[: len(held)]
    if each:
        torch._foreach_mul_(held, [(clip / (norm + 1e-6)).clamp_max(1.0) for norm in of_held])
    else:
        together = torch.stack(of_held).norm()
        torch._foreach_mul_(held, (clip / (together + 1e-6)).clamp_max(1.0))
    return total


def optimizer_step(optimizer: torch.optim.AdamW, finite: Tensor) -> None:
    """A step, or none where ``finite`` is false: fused AdamW reads ``found_inf`` on the device."""
    optimizer.found_inf = (~finite).float()  # type: ignore[attr-defined]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


@torch.no_grad()
def undo_unless(finite: Tensor, buffers: list[Tensor], before: list[Tensor]) -> None:
    """Centre and batch-norm statistics keep a NaN for ever, so a skipped step leaves them too."""
    for buffer, old in zip(buffers, before, strict=True):
        buffer.copy_(torch.where(finite, buffer, old))


@torch.no_grad()
def update_teacher(
    teacher: Model, student: Model, momentum: float, follow_codebook: bool = False
) -> None:
    """``teacher <- momentum teacher + (1 - momentum) student``; buffers stay each network's own."""
    old = [local(p) for p in teacher.parameters()]
    new = [local(p.detach()) for p in student.parameters()]
    torch._foreach_lerp_(old, new, 1 - momentum)
    if follow_codebook:
        local(teacher.heads.codebook).copy_(local(student.heads.codebook))


def local(x: Tensor) -> Tensor:
    """What this process holds of a tensor: all of it, or its shard."""
    return x.to_local() if hasattr(x, "to_local") else x
