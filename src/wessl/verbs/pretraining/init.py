"""``--init``: weights to start from. They decide the encoder, and the pictures' channels."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from wessl import recipes
from wessl.auto import NOT_SET, Choice
from wessl.commands.pretrain_help import family_of
from wessl.config import Config, EncoderConfig
from wessl.evaluate.features.trained_encoder import undamaged
from wessl.run import Run, read_weights
from wessl.settings import from_dict
from wessl.weights import say_of

Change = Callable[[Config], Config]
_OWN = ("drop_path", "start")
"""What of an encoder belongs to a training and not to its weights."""
THEIRS = ("encoder.", "channels")
"""The settings that the weights decide."""


@dataclass(frozen=True)
class Init:
    """Weights to start from, and what their file or run says of them."""

    path: str
    weights: dict[str, Tensor]
    about: dict[str, Any]

    @property
    def encoder(self) -> EncoderConfig:
        return from_dict(EncoderConfig, self.about["encoder"])

    @property
    def normalisation(self) -> dict[str, list[float]]:
        """Of the pictures its first layer is made for."""
        return {name: self.about[name] for name in ("mean", "std")}

    def below(self, change: Change) -> Change:
        """The user's settings on a recipe that has this encoder instead of its own."""

        def changed(config: Config) -> Config:
            own = {name: getattr(config.encoder, name) for name in _OWN}
            if config.encoder.image_size == NOT_SET:  # the weights' size is no wish of the user's
                own["image_size"] = NOT_SET
            encoder = replace(self.encoder, **own)
            return change(replace(config, encoder=encoder, channels=self.about["channels"]))

        return changed

    def choices(self, chosen: list[Choice]) -> list[Choice]:
        """What was chosen, but for the encoder and its channels, which were not ours to choose."""
        why = "the weights of --init decide it"
        given = [Choice("encoder of --init", self.what(), why)]
        given.append(Choice("channels", self.about["channels"], why))
        return [*given, *(one for one in chosen if not one.setting.startswith(THEIRS))]

    def what(self) -> str:
        one = self.encoder
        if one.kind == "conv":
            return f"conv {'-'.join(map(str, one.widths))}"
        shape = (("wide", one.dim), ("blocks", one.depth), ("heads", one.heads))
        sizes = [
            f"{number} {name.removesuffix('s') if number == 1 else name}"
            for name, number in shape
            if number is not None
        ]
        return f"ViT {', '.join(sizes) or one.size}, patches of {one.patch_size}"

    def words(self) -> list[str]:
        """What is begun from, what of the file is not used, and what was changed on the way."""
        begun = f"starting from {self.path}: {self.what()}; {len(self.weights)} tensors"
        return [begun, *say_of(self.about, self.path)]


def read_init(path: str | None, recipe: str, change: Change) -> Init | None:
    """``change`` may say how many attention heads a file's encoder has, which files do not."""
    if path is None:
        return None
    place = Path(path).expanduser()
    if place.is_dir():
        with undamaged(place):
            return Init(path, *Run(place).load_encoder())
    heads = change(recipes.recipe(family_of(recipe))).encoder.heads
    return Init(path, *read_weights(place, heads=heads))
