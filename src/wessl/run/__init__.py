"""Run folders, and the encoders that lie in them."""

from wessl.run.encoders import build_encoder, describe_encoder, read_weights
from wessl.run.folder import Run, State, damage

__all__ = ["Run", "State", "build_encoder", "damage", "describe_encoder", "read_weights"]
