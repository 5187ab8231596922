"""What every function of this room asks of its input."""

import math

import torch
from torch import Tensor


def at_least_fp32(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def common_dtype(a: Tensor, b: Tensor) -> torch.dtype:
    """The wider of the two, and at least fp32: losses are not computed in less."""
    if not (a.is_floating_point() and b.is_floating_point()):
        raise ValueError(f"expected floating-point tensors, got {a.dtype} and {b.dtype}")
    return torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float32)


def can_look(x: Tensor) -> bool:
    """Whether values can be looked at without waiting for a device, or for a compiler."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def refuse_other_than_probabilities(p: Tensor, words: str) -> None:
    """Logits, probabilities and their logarithms are easily mixed up, and all give some loss.

    A look at one picture tells.
    """
    if not can_look(p):
        return
    total = p.sum(-1)
    # NaN passes: a step that has gone wrong is skipped and told of, not refused.
    if bool((p < 0).any() | ((total - 1).abs() > 0.05).any()):
        raise ValueError(f"{words}, over the last axis: found a sum of {float(total.flatten()[0])}")


def positive(temperature: float | Tensor) -> float | Tensor:
    """The temperature without gradient, if it is a positive finite number.

    A tensor on an accelerator is taken as it is: a schedule there must not wait for the host.
    """
    if isinstance(temperature, Tensor):
        temperature = temperature.detach()
    one_number = (
        temperature.numel() == 1
        if isinstance(temperature, Tensor)
        else (isinstance(temperature, (int, float)) and not isinstance(temperature, bool))
    )
    if not one_number:
        raise ValueError(f"temperature must be a positive finite number, got {temperature!r}")
    on_host = not isinstance(temperature, Tensor) or temperature.device.type == "cpu"
    if on_host and not torch.compiler.is_compiling():
        value = float(temperature)
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"temperature must be a positive finite number, got {value}")
    return temperature
