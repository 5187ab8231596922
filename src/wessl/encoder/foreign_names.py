"""What others call the tensors of a ViT, and which of theirs ours has no place for."""

import re

HF_PATCHES = "embeddings.patch_embeddings.projection.weight"
PATCHES = ("patch_embed.proj.weight", HF_PATCHES)

_RENAMED = (
    # DINOv2's training keeps its blocks in chunks; the second number counts through all of them.
    (r"^blocks\.\d+\.(\d+)\.", r"blocks.\1."),
    (r"\.gamma_([12])$", r".ls\1.gamma"),
)
_HF_RENAMED = (
    (r"^embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"^embeddings\.position_embeddings$", "pos_embed"),
    (r"^embeddings\.", ""),
    (r"^encoder\.layer\.", "blocks."),
    (r"^layernorm\.", "norm."),
    (r"\.attention\.attention\.", ".attn."),
    (r"\.attention\.output\.dense\.", ".attn.proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"\.output\.dense\.", ".mlp.fc2."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.layer_scale([12])\.lambda1$", r".ls\1.gamma"),
)
_LEFT_OUT = (
    (r"^(head|fc|pred|pre_logits|fc_norm|classifier|pooler)\.", "head or classifier"),
    (r"^(mask_token|masked_embed)$", "stands for masked patches, in its own training only"),
    (r"^decoder", "decoder, used in its own training only"),
)
_IMPOSSIBLE = (
    (
        r"^(register_tokens|reg_token|storage_tokens)$",
        "register tokens, which our ViT does not have",
    ),
    (r"\.mlp\.(w12|w3|fc1_g|fc1_x|weights_in|weights_out)\.", "a SwiGLU MLP, where ours is GELU"),
    (r"^(dist_token|distillation_token|head_dist\.)", "a distillation token, which ours has not"),
    (r"relative_position|q_bias$|v_bias$", "relative positions, where ours are absolute"),
    (r"^norm_pre\.", "a norm before the first block, which ours has not"),
    (r"\.attn\.[qk]_norm\.", "normalised queries and keys, which ours are not"),
    (r"^rope|rope_embed", "rotary positions, where ours are learned"),
)


def rename(name: str, style: str) -> str:
    """A tensor's name, without wrappers, under timm's names.

    >>> rename("encoder.layer.3.intermediate.dense.bias", "hf")
    'blocks.3.mlp.fc1.bias'
    """
    for pattern, new in _HF_RENAMED if style == "hf" else _RENAMED:
        name = re.sub(pattern, new, name)
    return name


def why_left_out(name: str) -> str | None:
    """Why a tensor is no part of an encoder, or None."""
    return _first(_LEFT_OUT, name)


def why_impossible(name: str) -> str | None:
    """What a tensor shows of its model that our ViT cannot compute, or None."""
    return _first(_IMPOSSIBLE, name)


def _first(table: tuple[tuple[str, str], ...], name: str) -> str | None:
    return next((reason for pattern, reason in table if re.search(pattern, name)), None)
