"""The three sizes, and how a cell becomes a whole config at one of them.

``smoke`` and ``small`` start from the automatic recipe, which suits pictures and device; ``paper``
from the recipes as published. What the automatic recipe would choose differently from one cell or
one day to the next is fixed here, so that the cells of a study differ by what they say alone.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from wessl import auto, recipes
from wessl.auto import DataFacts
from wessl.config import Config, HeadsConfig
from wessl.data.views.config import Views, dino_views, msn_views
from wessl.settings import full_name, override
from wessl.study.cell import AtLeast, Cell, Share, Size
from wessl.study.grids import HIDDEN

GAMMAS = (0.0125, 0.025, 0.05, 0.1, 0.2)
MSN_GAMMAS = (0.005, 0.01, 0.025, 0.05, 0.1)
FEW_SHOT = ("1-shot", "2-shot", "5-shot")
SMOKE = Size(
    "smoke",
    "minutes on a CPU: does it run?",
    heads=(1, 2, 4),
    msn_heads=(1, 2),
    gammas=(0.0125, 0.05, 0.2),
    msn_gammas=(0.01, 0.1),
    depths=(2, 4),
    widths=(32, 128),
    temperatures=(0.025, 0.05),
    seeds=1,
    protocols=("1-shot", "5-shot", "k-NN"),
    overhead_steps=24,
    draws=10,
)
SMALL = Size(
    "small",
    "minutes a run on one GPU: 100 epochs of a ViT-T, or 50 of a small network on drawings",
    heads=(1, 2, 4, 8, 16, 32),
    msn_heads=(1, 2, 4, 8, 16),
    gammas=GAMMAS,
    msn_gammas=MSN_GAMMAS,
    depths=(2, 3, 4),
    widths=(512, 1024, 2048, 4096),
    temperatures=(0.0125, 0.025, 0.05),
    seeds=3,
    protocols=(*FEW_SHOT, "13-shot", "k-NN", "linear-fast"),
    overhead_steps=120,
)
PAPER = replace(
    SMALL,
    name="paper",
    line="ImageNet, as published: weeks of GPU time",
    protocols=(*FEW_SHOT, "1%", "k-NN", "linear"),
)
SIZES: dict[str, Size] = {size.name: size for size in (SMOKE, SMALL, PAPER)}
SMOKE_EPOCHS = 3


def resolve(
    cell: Cell,
    size: Size,
    facts: DataFacts,
    settings: Mapping[str, Any],
    epochs: float | None = None,
    common: Mapping[str, Any] = {},
) -> Config:
    """The cell's config for these pictures and this device; the seed is still 0.

    Of what is set twice the later counts: the size, ``common`` of the study, the user's
    ``settings``, the cell itself.
    """
    if size.name == "paper" or cell.published:
        config = recipes.recipe(f"{cell.recipe}/{cell.architecture}")
        length = epochs or (cell.epochs if size.name == "paper" else None) or config.optim.epochs
        own = _without_gamma(cell, config)
        config = override(config, {"channels": facts.channels, "optim.epochs": length, **own})
        if facts.device == "cpu":
            config = replace(config, precision="fp32")
        config = override(config, {**common, **settings})
    else:
        # What the cell sets itself must not lead the automatic recipe to schedules for another.
        asked = {**common, **settings}
        asked = {name: asked[name] for name in asked if full_name(name) not in cell.changes}
        config = _automatic(cell, size, facts, epochs, asked)
        own = _of_size(size, config, facts) | _without_gamma(cell, config)
        config = override(config, {**own, **common, **settings})
        if cell.recipe in ("dino", "msn"):
            config = original(cell.recipe, config)
    for name, value in cell.changes.items():
        if isinstance(value, (Share, AtLeast)):
            value = value.settle(_get(config, name))
        config = override(config, {name: value})
    return _with_plain_heads(_with_gamma(config))


def _automatic(
    cell: Cell, size: Size, facts: DataFacts, epochs: float | None, settings: Mapping[str, Any]
) -> Config:
    family = cell.recipe + ("-star" if cell.recipe in ("dino", "msn") else "")
    if not facts.grey_drawings:  # on a CPU too, where methods without masks would get another
        settings = {"encoder.kind": "vit", **settings}
    if epochs is None:
        epochs = SMOKE_EPOCHS if size.name == "smoke" else 50 if facts.grey_drawings else 100
    return auto.small(family, facts, epochs=epochs, change=lambda c: override(c, dict(settings)))[0]


def _of_size(size: Size, config: Config, facts: DataFacts) -> dict[str, Any]:
    # Memory free today must not decide over a batch's parts: ME-MAX sees one part at a time.
    settings: dict[str, Any] = {"optim.accumulate": 1}
    transformer = config.encoder.kind == "vit"
    if transformer:
        settings["encoder.size"] = "T"
    elif facts.device == "cpu":  # whatever this CPU does best, so that a table can be made again
        settings["precision"] = "fp32"
    if size.name == "smoke":
        settings |= {"heads.count": 4, "heads.codes": min(32, config.heads.codes)}
        settings["heads.hidden_dim"] = 128
        if transformer:
            settings["encoder.depth"] = 2
    return settings


def _get(config: Config, name: str) -> Any:
    value: Any = config
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _without_gamma(cell: Cell, config: Config) -> dict[str, Any]:
    """A recipe's gamma is of its own weighting; a cell with another does not take it over."""
    same = cell.changes.get("loss.weighting", config.loss.weighting) == config.loss.weighting
    return {} if same else {"loss.gamma": None}


def _with_gamma(config: Config) -> Config:
    """Said in full, so that equal cells of two studies are equal configs."""
    loss = config.loss
    gamma = None if loss.weighting.startswith("unif") else loss.settled_gamma
    return replace(config, loss=replace(loss, gamma=gamma))


def _with_plain_heads(config: Config) -> Config:
    """Equal networks are equal configs: what a linear head does not have does not tell them apart.

    Its width, and the batch norm after hidden layers.
    """
    heads, usual = config.heads, HeadsConfig()
    if heads.depth > 1:
        return config
    plain = replace(heads, hidden_dim=usual.hidden_dim, batch_norm=usual.batch_norm)
    return replace(config, heads=plain)


def original(family: str, star: Config) -> Config:
    """DINO or MSN as published, in the sizes of their starred version.

    Theirs: head, loss, views and optimiser. The starred one's: encoder, sizes of pictures, batch,
    length, warm-up, momentum and layers of the head, though theirs is never linear; codes and
    learning rate keep their published proportion to it.
    """
    published, like = recipes.recipe(f"{family}/vits16"), recipes.recipe(f"{family}-star/vits16")
    heads = replace(
        published.heads,
        codes=max(2, star.heads.codes * published.heads.codes // like.heads.codes),
        embed_dim=star.heads.embed_dim,
        depth=HIDDEN.settle(star.heads.depth),
    )
    optim = replace(
        published.optim,
        epochs=star.optim.epochs,
        batch_size=star.optim.batch_size,
        accumulate=star.optim.accumulate,
        lr=star.optim.lr * published.optim.lr / like.optim.lr,
        lr_start=star.optim.lr * published.optim.lr_start / like.optim.lr,
        warmup_epochs=star.optim.warmup_epochs,
        momentum=star.optim.momentum,
    )
    warm = min(published.loss.teacher_temperature_epochs, star.loss.teacher_temperature_epochs)
    mask = published.loss.mask if star.encoder.kind == "vit" else 0.0
    loss = replace(published.loss, teacher_temperature_epochs=warm, mask=mask)
    encoder = replace(
        star.encoder, drop_path=min(star.encoder.drop_path, published.encoder.drop_path)
    )
    return replace(
        star,
        recipe=f"{family}/study",
        heads=heads,
        optim=optim,
        loss=loss,
        encoder=encoder,
        views=_views(family, star.views),
    )


def _views(family: str, star: Views) -> Views:
    """Of drawings, whole and turned, both methods keep the starred one's."""
    small = [crop for crop in star.crops if crop.role == "local"]
    if not small:
        return star
    sizes = star.crops[0].size, small[0].size, sum(crop.count for crop in small)
    blur = star.crops[0].photometric.blur_sigma
    if family == "msn":
        return msn_views(*sizes, blur_sigma=blur)
    return dino_views(*sizes, local_area=(0.05, 0.25), blur_sigma=blur)
