"""What training and evaluation ask of an encoder: any module with these three can be plugged in."""

from typing import Protocol, runtime_checkable

from torch import Tensor


@runtime_checkable
class Encoder(Protocol):
    """``images (b, ch, h, w) -> tokens (b, 1 + patches, dim)``; token 0 stands for the picture.

    ``cls(images)`` returns token 0 alone, ``(b, dim)``, and may skip what only the others need. An
    encoder without patch tokens returns ``(b, 1, dim)`` and says ``patch_tokens = False``.
    ``wessl.ViT`` and ``wessl.ConvNet`` are two of them; your own needs no base class.
    """

    dim: int
    patch_tokens: bool

    def __call__(self, images: Tensor) -> Tensor: ...

    def cls(self, images: Tensor) -> Tensor: ...
