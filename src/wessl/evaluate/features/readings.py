"""What is read from an encoder's tokens as the features of a picture, all of it in one pass.

- `cls`: the `[CLS]` token of the last layer.
- `cls4`: the `[CLS]` tokens of the last four layers, each after the final norm, joined.
- `cls+mean`: the `[CLS]` token and the mean patch token of the last layer, joined.
"""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from wessl.errors import UserError

Reading = Literal["cls", "cls4", "cls+mean"]
READINGS: tuple[Reading, ...] = get_args(Reading)
TOKENS: dict[Reading, int] = {"cls": 1, "cls4": 4, "cls+mean": 2}
"""How many tokens are joined: a reading is this many times as wide as the encoder."""


def possible_readings(encoder: nn.Module) -> tuple[Reading, ...]:
    """Those this encoder has the tokens for."""
    lacks = {"cls4": _lacks_layers(encoder), "cls+mean": _lacks_patches(encoder)}
    return tuple(reading for reading in READINGS if lacks.get(reading) is None)


def check_readings(encoder: nn.Module, readings: Sequence[Reading]) -> None:
    possible = possible_readings(encoder)
    for reading in readings:
        if reading not in READINGS:
            raise UserError(f"reading must be one of {', '.join(READINGS)}, not {reading!r}")
        if reading not in possible:
            lack = _lacks_layers(encoder) if reading == "cls4" else _lacks_patches(encoder)
            raise UserError(
                f"reading {reading!r} cannot be taken from this {type(encoder).__name__}: {lack}; "
                f"possible are {', '.join(possible)}"
            )
    if not readings:
        raise UserError(f"give at least one reading of {', '.join(possible)}")


def read_tokens(
    encoder: nn.Module, images: Tensor, readings: Sequence[Reading]
) -> dict[Reading, Tensor]:
    """Each reading `(b, tokens * dim)` of prepared images `(b, ch, h, w)`."""
    check_readings(encoder, readings)
    if set(readings) == {"cls"}:  # the last block then computes nothing for the other tokens
        return {"cls": encoder.cls(images)}  # type: ignore[operator]
    several = "cls4" in readings
    layers = encoder.last_blocks(images, 4) if several else [encoder(images)]  # type: ignore[operator]
    last = layers[-1]
    found: dict[Reading, Tensor] = {}
    for reading in readings:
        if reading == "cls":
            found[reading] = last[:, 0]
        elif reading == "cls4":
            found[reading] = torch.cat([layer[:, 0] for layer in layers], 1)
        else:
            found[reading] = torch.cat([last[:, 0], last[:, 1:].mean(1)], 1)
    return found


def _lacks_layers(encoder: nn.Module) -> str | None:
    if not hasattr(encoder, "last_blocks"):
        return "it has no [CLS] token in its inner layers"
    depth = getattr(encoder, "depth", 4)
    return None if depth >= 4 else f"it has {depth} layers"


def _lacks_patches(encoder: nn.Module) -> str | None:
    return None if encoder.patch_tokens else "it has no patch tokens"
