"""What every function of this room asks of its input."""

import math

import torch
from torch import Tensor


def at_least_fp32(x: Tensor) -> Tensor:
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def positive(temperature: float | Tensor) -> float | Tensor:
    """The temperature without gradient, if it is a positive finite number.

    A tensor on an accelerator is taken as it is: a schedule there must not wait for the host.
    """
    if isinstance(temperature, Tensor):
        temperature = temperature.detach()
    on_host = not isinstance(temperature, Tensor) or temperature.device.type == "cpu"
    if on_host and not torch.compiler.is_compiling():
        value = float(temperature)
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"temperature must be a positive finite number, got {value}")
    return temperature
