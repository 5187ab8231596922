"""wessl: image encoders from unlabelled pictures, by a weighted ensemble of heads.

The public names below load on first use, so that ``import wessl`` and ``wessl --help`` stay quick.
"""

import inspect
import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from wessl._version import __version__

_HOMES = {
    "Weighting": "wessl.ensemble.weighting",
    "ensemble_weights": "wessl.ensemble.weighting",
    "ensemble_loss": "wessl.ensemble.loss",
    "head_shares": "wessl.ensemble.loss",
    "multiview_loss": "wessl.ensemble.loss",
    "multiview_loss_by_view": "wessl.ensemble.by_view",
    "EnsembleHeads": "wessl.ensemble.heads",
    "Centering": "wessl.ensemble.targets",
    "me_max": "wessl.ensemble.targets",
    "sharpen": "wessl.ensemble.targets",
    "sinkhorn": "wessl.ensemble.targets",
    "ConvNet": "wessl.encoder.conv",
    "Encoder": "wessl.encoder.protocol",
    "ViT": "wessl.encoder.vit",
    "Diversity": "wessl.analyse.diversity",
    "classify": "wessl.verbs.classify",
    "diversity": "wessl.verbs.diversity",
    "embed": "wessl.verbs.embed",
    "pack": "wessl.verbs.pack",
    "Run": "wessl.run",
    "UserError": "wessl.errors",
    "knn": "wessl.evaluate.classifiers.knn",
    "load": "wessl.evaluate.features.trained_encoder",
    "logistic": "wessl.evaluate.classifiers.logistic",
}
_VERBS = ("bench", "evaluate", "export", "pretrain", "report", "study")

__all__ = [
    "Centering",
    "ConvNet",
    "Diversity",
    "Encoder",
    "EnsembleHeads",
    "Run",
    "UserError",
    "ViT",
    "Weighting",
    "__version__",
    "bench",
    "classify",
    "diversity",
    "embed",
    "ensemble_loss",
    "ensemble_weights",
    "evaluate",
    "export",
    "head_shares",
    "knn",
    "load",
    "logistic",
    "me_max",
    "multiview_loss",
    "multiview_loss_by_view",
    "pack",
    "pretrain",
    "report",
    "sharpen",
    "sinkhorn",
    "study",
]

if TYPE_CHECKING:
    from wessl.analyse.diversity import Diversity
    from wessl.encoder.conv import ConvNet
    from wessl.encoder.protocol import Encoder
    from wessl.encoder.vit import ViT
    from wessl.ensemble.by_view import multiview_loss_by_view
    from wessl.ensemble.heads import EnsembleHeads
    from wessl.ensemble.loss import ensemble_loss, head_shares, multiview_loss
    from wessl.ensemble.targets import Centering, me_max, sharpen, sinkhorn
    from wessl.ensemble.weighting import Weighting, ensemble_weights
    from wessl.errors import UserError
    from wessl.evaluate.classifiers.knn import knn
    from wessl.evaluate.classifiers.logistic import logistic
    from wessl.evaluate.features.trained_encoder import load
    from wessl.run import Run
    from wessl.verbs.bench import bench
    from wessl.verbs.classify import classify
    from wessl.verbs.diversity import diversity
    from wessl.verbs.embed import embed
    from wessl.verbs.evaluate import evaluate
    from wessl.verbs.export import export
    from wessl.verbs.pack import pack
    from wessl.verbs.pretrain import pretrain
    from wessl.verbs.report import report
    from wessl.verbs.study import study


def __getattr__(name: str) -> Any:
    if name in _VERBS:
        return import_module(f"wessl.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'wessl' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Room(ModuleType):
    """A room that shares its name with a verb: ``wessl.pretrain(...)`` is the verb."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        verb = self.__name__.removeprefix("wessl.")
        return getattr(import_module(f"wessl.verbs.{verb}"), verb)(*args, **options)

    @property
    def __signature__(self) -> Any:
        verb = self.__name__.removeprefix("wessl.")
        return inspect.signature(getattr(import_module(f"wessl.verbs.{verb}"), verb))


class _Package(ModuleType):
    """Makes such a room callable the moment it is imported, by whichever path."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _VERBS and type(value) is ModuleType:
            value.__class__ = _Room
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
