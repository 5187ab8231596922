"""wessl: image encoders from unlabelled pictures, by a weighted ensemble of heads.

The public names below load on first use, so that ``import wessl`` and ``wessl --help`` stay quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from wessl._version import __version__

_HOMES = {
    "Weighting": "wessl.ensemble.weighting",
    "ensemble_weights": "wessl.ensemble.weighting",
    "ensemble_loss": "wessl.ensemble.loss",
    "multiview_loss": "wessl.ensemble.loss",
    "EnsembleHeads": "wessl.ensemble.heads",
    "Centering": "wessl.ensemble.targets",
    "me_max": "wessl.ensemble.targets",
    "sharpen": "wessl.ensemble.targets",
    "sinkhorn": "wessl.ensemble.targets",
    "ConvNet": "wessl.encoder.conv",
    "Encoder": "wessl.encoder.protocol",
    "ViT": "wessl.encoder.vit",
}

__all__ = [
    "Centering",
    "ConvNet",
    "Encoder",
    "EnsembleHeads",
    "ViT",
    "Weighting",
    "__version__",
    "ensemble_loss",
    "ensemble_weights",
    "me_max",
    "multiview_loss",
    "sharpen",
    "sinkhorn",
]

if TYPE_CHECKING:
    from wessl.encoder.conv import ConvNet
    from wessl.encoder.protocol import Encoder
    from wessl.encoder.vit import ViT
    from wessl.ensemble.heads import EnsembleHeads
    from wessl.ensemble.loss import ensemble_loss, multiview_loss
    from wessl.ensemble.targets import Centering, me_max, sharpen, sinkhorn
    from wessl.ensemble.weighting import Weighting, ensemble_weights


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'wessl' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
