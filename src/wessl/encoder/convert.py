"""Other people's ViT weights under our names: DINO, MSN, DINOv2, timm, Hugging Face, our own.

Nothing is dropped in silence: every tensor of a file is used, or named with the reason why it is
not, and what a `ViT` cannot compute exactly is an error.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from wessl.encoder.foreign_names import HF_PATCHES, PATCHES, rename, why_impossible, why_left_out
from wessl.encoder.sizes import SIZES
from wessl.encoder.vit import ViT

Network = Literal["teacher", "student"]

_NETWORKS: dict[Network, tuple[str, ...]] = {  # what training scripts call the two in a checkpoint
    "teacher": ("teacher", "target_encoder", "state_dict_ema", "model_ema"),
    "student": ("student", "encoder"),
}
_WRAPPERS = ("state_dict", "model")
# Width and depth of the sizes T, S, B, L, H and g, in all of which a head is 64 wide.
_NAMED = (*((dim, depth) for dim, depth, _ in SIZES.values()), (1280, 32), (1536, 40))
_AVERAGED = ("teacher", "target", "momentum", "ema")


class UnknownHeads(ValueError):
    """Weights are the same however many heads share them, so somebody has to say how many do."""


@dataclass(frozen=True)
class Converted:
    """Weights that `ViT(dim=..., depth=..., ...)` loads strictly, and how they came about."""

    state: dict[str, Tensor]
    dim: int
    depth: int
    heads: int
    patch_size: int
    image_size: int
    channels: int
    style: Literal["timm", "hf"]  # whose names the file used; DINO's and MSN's are timm's
    left_out: dict[str, str]  # name in the file: reason
    notes: list[str]  # what was changed on the way


def convert(
    checkpoint: Mapping[str, Any], which: Network = "teacher", heads: int | None = None
) -> Converted:
    """The encoder in a state dict or a whole checkpoint, which may hold two networks.

    Weights do not tell the number of attention heads. Without `heads` they are 64 wide, as in every
    named size of every supported family; a width that this does not divide is `UnknownHeads`.

    >>> whole = {"teacher": {"backbone." + k: v for k, v in ViT("T").state_dict().items()}}
    >>> found = convert(whole | {"epoch": 7})
    >>> ViT("T").load_state_dict(found.state), found.heads, found.left_out
    (<All keys matched successfully>, 3, {})
    """
    notes: list[str] = []
    left_out: dict[str, str] = {}
    network = _network(checkpoint, which, left_out, notes)
    prefix = _prefix(network, which)
    style: Literal["timm", "hf"] = "hf" if prefix + HF_PATCHES in network else "timm"
    state: dict[str, Tensor] = {}
    for name, tensor in network.items():
        if not name.startswith(prefix):
            left_out[name] = f"not in the encoder, whose names begin with {prefix}"
            continue
        renamed = rename(name.removeprefix(prefix), style)
        reason = why_left_out(renamed)
        if reason is not None:
            left_out[name] = reason
        elif renamed in state:
            raise ValueError(f"{name} and another tensor both are {renamed}")
        else:
            state[renamed] = tensor.float() if tensor.is_floating_point() else tensor
    for name in state:
        if (reason := why_impossible(name)) is not None:
            raise ValueError(f"{name}: this model has {reason}; its features would be others here")
    if "norm.weight" not in state and any(".fc_norm." in f".{name}" for name in left_out):
        raise ValueError("this model norms the mean of its patches (fc_norm), not its tokens")
    _join_attention(state, notes)
    _fold_layer_scale(state, notes)
    if style == "hf":
        notes.append("Hugging Face's norms add 1e-12 to a variance, ours 1e-6: rounding differs")
    shape = _shape(state, heads, notes)
    _check(state, shape)
    return Converted(state, **shape, style=style, left_out=left_out, notes=notes)


def _network(
    checkpoint: Mapping[str, Any], which: Network, left_out: dict[str, str], notes: list[str]
) -> dict[str, Tensor]:
    """The one state dict asked for, and a word on every other entry that holds tensors."""
    tensors = {name: value for name, value in checkpoint.items() if isinstance(value, Tensor)}
    inside = {name: value for name, value in checkpoint.items() if isinstance(value, Mapping)}
    plain = any(name.endswith(PATCHES) for name in tensors)
    entry = next((n for n in (*_NETWORKS[which], *_WRAPPERS) if n in inside and not plain), None)
    if entry is None and not plain:
        other: Network = "student" if which == "teacher" else "teacher"
        if there := [name for name in _NETWORKS[other] if name in inside]:
            raise ValueError(f"holds no {which}, only `{there[0]}`; ask for the {other}")
        some = ", ".join(list(checkpoint)[:5])
        raise ValueError(f"holds no ViT: no {' or '.join(PATCHES)}; it begins with: {some}")
    everybody = {name for names in _NETWORKS.values() for name in names}
    for name, value in checkpoint.items():
        if name != entry and not (plain and name in tensors) and (count := _count(value)):
            kind = "another network" if name in everybody else "training state"
            left_out[name] = f"{kind} ({count} tensor{'s' * (count > 1)})"
    if entry is None:
        return tensors
    notes.append(f"the network is `{entry}`")
    return _network(inside[entry], which, left_out, notes)


def _count(value: Any) -> int:
    """How many tensors lie in a value, at any depth."""
    if isinstance(value, Mapping):
        return sum(_count(part) for part in value.values())
    if isinstance(value, (list, tuple)):
        return sum(_count(part) for part in value)
    return int(isinstance(value, Tensor))


def _prefix(network: Iterable[str], which: Network) -> str:
    """What wrappers (`module.`, `backbone.`, `encoder.`, `vit.`) put before the encoder's names."""
    ends = [(name, end) for name in network for end in PATCHES if f".{name}".endswith(f".{end}")]
    found = sorted(name.removesuffix(end) for name, end in ends)
    if len(found) > 1:
        averaged = [p for p in found if any(word in p for word in _AVERAGED)]
        wanted = averaged if which == "teacher" else [p for p in found if p not in averaged]
        found = wanted if len(wanted) == 1 else found
    if len(found) != 1:
        raise ValueError(f"holds {len(found)} ViTs, at {', '.join(found)}; keep one of them")
    return found[0]


def _join_attention(state: dict[str, Tensor], notes: list[str]) -> None:
    """Query, key and value in one matrix; a bias that no block has is a bias of zero."""
    for name in [name for name in state if ".attn.query." in name]:
        parts = [name.replace(".query.", f".{part}.") for part in ("query", "key", "value")]
        if all(part in state for part in parts):
            joined = torch.cat([state.pop(part) for part in parts])
            state[name.replace(".query.", ".qkv.")] = joined
    weights = [name for name in state if name.endswith(".attn.qkv.weight")]
    if weights and not any(name.endswith(".attn.qkv.bias") for name in state):
        for name in weights:
            state[name.replace("weight", "bias")] = state[name].new_zeros(len(state[name]))
        notes.append("queries, keys and values have no bias: zeros stand for it")


def _fold_layer_scale(state: dict[str, Tensor], notes: list[str]) -> None:
    """A scale of what a branch adds is a scale of the branch's last layer, weight and bias."""
    scales = [name for name in state if re.search(r"\.ls[12]\.gamma$", name)]
    for name in scales:
        block = name.removesuffix(name[-len(".ls1.gamma") :])
        last = f"{block}.attn.proj" if ".ls1." in name else f"{block}.mlp.fc2"
        gamma = state.pop(name)
        for part in (f"{last}.weight", f"{last}.bias"):
            if part in state and len(state[part]) == len(gamma):
                state[part] = gamma.view(-1, *[1] * (state[part].ndim - 1)) * state[part]
    if scales:
        notes.append("layer scale is folded into the last layer of each branch")


def _shape(state: dict[str, Tensor], heads: int | None, notes: list[str]) -> dict[str, int]:
    patches = state["patch_embed.proj.weight"]
    numbers = [int(found[1]) for name in state if (found := re.match(r"blocks\.(\d+)\.", name))]
    if patches.ndim != 4 or patches.shape[2] != patches.shape[3] or not numbers:
        raise ValueError(
            f"is no ViT of square patches: patches {tuple(patches.shape)}, {len(numbers)} tensors "
            "in blocks"
        )
    for name in ("pos_embed", "cls_token"):
        if name not in state or state[name].ndim != 3:
            raise ValueError(f"has no {name} of three dimensions; our ViT learns its own")
    dim, channels, patch_size, _ = patches.shape
    tokens = state["pos_embed"].shape[1]
    if math.isqrt(tokens) ** 2 == tokens > 1:
        state["pos_embed"] = torch.nn.functional.pad(state["pos_embed"], (0, 0, 1, 0))
        notes.append("[CLS] has no position embedding: zeros stand for it")
        tokens += 1
    side = math.isqrt(tokens - 1)
    if side**2 != tokens - 1:
        raise ValueError(f"pos_embed holds {tokens} tokens, which is no square of patches and one")
    depth = 1 + max(numbers)
    if heads is None and dim % 64:
        raise UnknownHeads(
            f"is {dim} wide, no multiple of 64, and does not tell its number of attention heads"
        )
    if heads is None and (dim, depth) not in _NAMED:
        notes.append(f"its number of attention heads is assumed: {dim // 64}, each 64 wide")
    return dict(
        dim=dim,
        depth=depth,
        heads=dim // 64 if heads is None else heads,
        patch_size=patch_size,
        image_size=side * patch_size,
        channels=channels,
    )


def _check(state: dict[str, Tensor], shape: dict[str, int]) -> None:
    """Names and shapes are those of a `ViT` of this shape, and every number is finite."""
    settings = {name: value for name, value in shape.items() if name != "channels"}
    with torch.device("meta"):
        own = ViT(**settings, in_channels=shape["channels"]).state_dict()  # type: ignore[arg-type]
    lists = dict(
        missing=[name for name in own if name not in state],
        unknown=[name for name in state if name not in own],
        wrong=[
            f"{name} is {tuple(state[name].shape)}, not {tuple(own[name].shape)}"
            for name in own
            if name in state and state[name].shape != own[name].shape
        ],
        broken=[n for n in own if n in state and not state[n].isfinite().all()],
    )
    words = dict(
        missing="missing", unknown="unknown", wrong="of another shape", broken="not finite"
    )
    problems = [
        f"{len(names)} {words[kind]}: {', '.join(names[:5])}{', ...' * (len(names) > 5)}"
        for kind, names in lists.items()
        if names
    ]
    if problems:
        raise ValueError(f"is no ViT that can be used here: {'; '.join(problems)}")
