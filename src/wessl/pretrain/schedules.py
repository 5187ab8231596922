"""Everything that changes during a run, as pure functions of the step."""

import math
from dataclasses import dataclass

from wessl.config import LossConfig, OptimConfig


@dataclass(frozen=True)
class Now:
    """The values of one step."""

    lr: float
    weight_decay: float
    momentum: float
    teacher_temperature: float
    gamma: float
    """In nats, as the loss takes it."""
    codes_frozen: bool


def linear(start: float, end: float, progress: float) -> float:
    """From start to end while progress runs from 0 to 1, then constant."""
    return start + (end - start) * min(1.0, max(0.0, progress))


def cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * min(1.0, max(0.0, progress))))


def share(step: float, length: float) -> float:
    """How much of a phase of this length has passed; a phase of no length is over."""
    return step / length if length > 0 else 1.0


def schedule(
    step: int, steps: int, steps_per_epoch: int, optim: OptimConfig, loss: LossConfig, codes: int
) -> Now:
    warmup = optim.warmup_epochs * steps_per_epoch
    # Unstretched, the run's last step has progress 1: every schedule arrives where it says.
    last = optim.schedule_stretch * steps - 1
    progress = share(step, last)
    if step < warmup:
        lr = linear(optim.lr_start, optim.lr, share(step, warmup))
    else:
        lr = cosine(optim.lr, optim.min_lr, share(step - warmup, last - warmup))
    shape = cosine if optim.momentum_shape == "cosine" else linear
    epoch = step / steps_per_epoch
    if loss.stepwise_temperature:  # DINO's last warm-up epoch has the final temperature already
        warm = share(math.floor(epoch), loss.teacher_temperature_epochs - 1)
    else:
        warm = share(epoch, loss.teacher_temperature_epochs)
    return Now(
        lr=lr,
        weight_decay=cosine(optim.weight_decay, optim.weight_decay_end, progress),
        momentum=shape(optim.momentum, optim.momentum_end, progress),
        teacher_temperature=linear(loss.teacher_temperature_start, loss.teacher_temperature, warm),
        gamma=gamma_in_nats(loss, codes, epoch),
        codes_frozen=epoch < optim.freeze_codes_epochs,
    )


def gamma_in_nats(loss: LossConfig, codes: int, epoch: float) -> float:
    """``prob*`` keep their gamma; the scores in nats take theirs in units of ln c."""
    target = loss.settled_gamma
    if not loss.gamma_in_nats:
        return target
    start = max(loss.gamma_start, target)
    return linear(start, target, share(epoch, loss.gamma_epochs)) * math.log(max(codes, 2))
