"""What is learnt from how much at once: encoder, views, batch, heads, precision, memory."""

import math
from collections.abc import Callable
from dataclasses import replace

from wessl.auto.choice import Choice, DataFacts
from wessl.auto.length import choose_epochs, choose_schedules
from wessl.config import Config
from wessl.data.views.config import Views, dino_views, drawing_views
from wessl.errors import UserError
from wessl.pretrain.cost import peak_bytes
from wessl.recipes import FAMILIES, names, unknown
from wessl.settings import override

Change = Callable[[Config], Config]

LOCAL = 0.43
"""Size of a small view beside a large one: the paper's 96 of 224."""
FEW = 50_000
"""Pictures, below which training gets some help, and fewer views."""
LARGE_SIDE = 160
"""Pixels of the shorter side, from which on views are those of the paper."""
CPU_SIDE = 64
"""Pixels of large views on a CPU, at most."""
OF_TRANSFORMERS = {
    "encoder.size": ("T", "S"),
    "encoder.dim": (8, 16),
    "encoder.depth": (1, 2),
    "encoder.heads": (1, 2),
    "encoder.patch_size": (1, 2),
    "encoder.start": ("random", "mimetic"),
}
"""What only a transformer has, and two values of each: set by the user, both become one."""
AS_ASKED = "as asked for"
NOT_SET = 0
"""A size that nobody set, where it is asked whether the user did."""


def small(
    name: str,
    facts: DataFacts,
    budget_seconds: float | None = None,
    epochs: float | None = None,
    change: Change = lambda config: config,
) -> tuple[Config, list[Choice]]:
    """A starred family sized to the pictures, the device and the time.

    ``auto`` is dino-star-ent, for few pictures with one codebook for all heads. Starts from the
    family's ``vits16``; every setting that may differ from it is in the list. The user's own
    ``epochs`` take the schedules along; ``change`` puts all of the user's settings on a config, so
    that what depends on them follows. They are not in what is returned.

    >>> digits = DataFacts(1000, 8, 8, channels=1, device="cpu", memory_bytes=8 * 2**30)
    >>> config, choices = small("dino-star-ent", digits)
    >>> config.encoder.kind, config.heads.codes, config.optim.batch_size
    ('conv', 128, 64)
    """
    family = "dino-star-ent" if name == "auto" else name.removesuffix("/auto")
    if family in ("dino", "msn"):
        raise UserError(
            f"--recipe {name}: the original {family} has no automatic sizes; write {family}/vits16 "
            f"for it as published, or {family}-star for automatic sizes"
        )
    if family not in FAMILIES:
        raise unknown(name, [*FAMILIES, *names(), "auto"])
    if facts.pictures < 2:
        raise UserError(f"at least 2 pictures are needed to learn from, found {facts.pictures}")
    base = FAMILIES[family]("vits16")
    asked = _asked_for("optim.batch_size", base, change)
    batch = _batch(facts) if asked is None else Choice("optim.batch_size", asked, AS_ASKED)
    size = _asked_for("encoder.image_size", base, change)
    if facts.grey_drawings:
        views, chosen = _drawings(base, facts, batch, size)
    elif facts.device == "cpu" and base.loss.mask == 0 and not _wants_transformer(base, change):
        views, chosen = _photographs_by_conv(base, facts, batch, size)
    else:
        patch = _asked_for("encoder.patch_size", base, change)
        views, chosen = _photographs(base, facts, batch, size, patch)
    if name == "auto" and facts.pictures < FEW:
        chosen.append(_share(change(base), facts))
    why = "the paper's best method; --recipe chooses another" if name == "auto" else AS_ASKED
    choices = [
        Choice("recipe", f"{family}/auto", why),
        Choice("channels", facts.channels, _channels(facts)),
        Choice("precision", *_precision(facts)),
        *chosen,
    ]
    sized = replace(_apply(base, choices), views=views)
    own = change(sized)
    length = None if epochs is None else Choice("optim.epochs", epochs, AS_ASKED)
    choices += [_parts(own, facts), length or choose_epochs(own, facts, budget_seconds)]
    choices += choose_schedules(change(_apply(sized, choices)), facts)
    return _apply(sized, choices), choices


def _apply(config: Config, choices: list[Choice]) -> Config:
    return override(config, {c.setting: c.value for c in choices if c.setting != "views"})


def _device(facts: DataFacts) -> str:
    return "a GPU" if facts.device == "cuda" else "a CPU"


def _channels(facts: DataFacts) -> str:
    kinds = {1: "the pictures are grey", 3: "the pictures are in colour"}
    return kinds.get(facts.channels, "the pictures have so many bands")


def _precision(facts: DataFacts) -> tuple[str, str]:
    if facts.device == "cuda":
        return "bf16", "faster on a GPU; losses stay in fp32"
    if not facts.cpu_bf16:
        return "fp32", "this CPU has no instructions for half precision"
    faster = "a fifth faster, or more" if facts.grey_drawings else "half as fast again, or more"
    return "bf16", f"this CPU has instructions for it: {faster}; losses stay in fp32"


def _drawings(
    base: Config, facts: DataFacts, batch: Choice, asked: int | None
) -> tuple[Views, list[Choice]]:
    size = asked or min(32, max(16, 2 * facts.short_side))
    choices = [
        Choice("encoder.kind", "conv", "a transformer finds too few patches in small drawings"),
        Choice("encoder.widths", (24, 48, 96), "enough for small drawings, and quick"),
        Choice("encoder.image_size", size, "the size of the views"),
        Choice("encoder.drop_path", 0.0, "the convolutional encoder has none"),
        Choice("views", f"2 x {size}", "whole, turned and slanted: a part could be of any drawing"),
        Choice("short_side", facts.short_side, "the pictures' own size"),
        batch,
        _count(base),
        _codes(base, batch.value, 128),
        Choice(
            "heads.depth", 1, "linear heads leave more to the encoder: +2 points 1-shot on digits"
        ),
        Choice("heads.embed_dim", 64, "in proportion to an encoder 96 wide"),
        Choice("optim.lr", 1e-3, "higher ones were no better on digits"),
        Choice("optim.weight_decay_end", 0.1, "a small network needs less"),
    ]
    if base.loss.mask > 0:
        why = "masks drop patches, which the convolutional encoder does not have"
        choices.append(Choice("loss.mask", 0.0, why, warning=True))
    return drawing_views(size), choices


def _photographs_by_conv(
    base: Config, facts: DataFacts, batch: Choice, asked: int | None
) -> tuple[Views, list[Choice]]:
    """On a CPU: see ``docs/LOG.md`` for what else was tried in the same time."""
    _, view, local = _crops(min(facts.short_side, CPU_SIDE))
    if asked is not None:
        view, local = asked, min(asked, max(16, round(LOCAL * asked / 8) * 8))
    views, told = _photographic_views(facts, view, local)
    why = "small views of a small network, so that a CPU gets through them often enough"
    choices = [
        Choice("encoder.kind", "conv", f"{why}; --encoder.kind vit for a transformer"),
        Choice("encoder.widths", (24, 48, 96), "a third of a million weights, and quick"),
        Choice("encoder.drop_path", 0.0, "the convolutional encoder has none"),
        *told,
        Choice("short_side", min(facts.short_side, view * 3 // 2), "enough for windows of a part"),
        batch,
        _count(base),
        _codes(base, batch.value, 128),
        Choice("heads.depth", 1, "linear heads leave more to the encoder"),
        Choice("heads.embed_dim", 64, "in proportion to an encoder 96 wide"),
        Choice("optim.lr", 1e-3, "what suits this network on drawings; others were not tried"),
    ]
    return views, choices


def _photographic_views(
    facts: DataFacts, view: int, local: int
) -> tuple[Views, tuple[Choice, Choice]]:
    count = 6 if facts.pictures < FEW else 10
    most = round(2.0 * view / 224, 2)
    blurred = (
        f"pictures are about {facts.width} x {facts.height}, blurred by up to {most:g} pixels: as "
        "much of them as in the paper"
    )
    return dino_views(view, local, count, blur_sigma=(0.1, max(0.1, most))), (
        Choice("encoder.image_size", view, "the size of the large views"),
        Choice("views", f"2 x {view} + {count} x {local}", f"2 large, {count} small; {blurred}"),
    )


def _photographs(
    base: Config, facts: DataFacts, batch: Choice, asked: int | None, patches: int | None
) -> tuple[Views, list[Choice]]:
    side, cuda = facts.short_side, facts.device == "cuda"
    if not cuda and asked is None and (patches or 8) <= 8:
        side = min(side, CPU_SIDE)
    patch, view, local = _crops(side)
    if asked is not None:
        view, local = asked, min(asked, max(4 * patch, round(LOCAL * asked / patch) * patch))
    views, told = _photographic_views(facts, view, local)
    if cuda:
        lr, why = 0.001 * batch.value / 512, "the paper's rule: 0.001 x batch / 512"
    else:
        lr, why = 0.002 * math.sqrt(batch.value / 1024), "0.002 x the root of batch / 1024"
    choices = [
        Choice("encoder.size", "S" if cuda else "T", f"what {_device(facts)} trains in fair time"),
        Choice(
            "encoder.depth",
            None if cuda else 6,
            "all 12 blocks" if cuda else "6 of 12 blocks: half the time",
        ),
        Choice("encoder.patch_size", patch, f"suits views of {view}"),
        Choice("encoder.start", *_start(facts)),
        *told,
        Choice("short_side", _short_side(side, view), "as much as the views can use"),
        batch,
        _count(base),
        _codes(base, batch.value, base.heads.codes),
        Choice("heads.hidden_dim", base.heads.hidden_dim, "the paper's"),
        Choice(
            "optim.lr",
            float(f"{max(1e-4, lr):.3g}"),
            why if lr >= 1e-4 else "a small batch; less would crawl",
        ),
    ]
    return views, choices


def _start(facts: DataFacts) -> tuple[str, str]:
    if facts.pictures < FEW:
        return "mimetic", "attention starts as if trained, which few pictures teach slowly"
    return "random", "as in the paper: there are pictures enough to learn attention from"


def _crops(side: int) -> tuple[int, int, int]:
    """Patch, global and local size: local views have at least four patches a side."""
    if side >= LARGE_SIDE:
        return 16, 224, 96
    if side >= 64:
        view = min(96, side // 8 * 8)
        return 8, view, math.ceil(LOCAL * view / 8) * 8
    view = max(24, side // 4 * 4)
    return 4, view, max(16, round(view / 8) * 4)


def _short_side(side: int, view: int) -> int:
    """The paper's 256 for views of 224, in proportion for larger ones."""
    return max(256, round(view * 256 / 224)) if side >= LARGE_SIDE else side


def _asked_for(setting: str, base: Config, change: Change) -> int | None:
    """A size the user set: what stands where there was none before the change."""
    group, name = setting.split(".")
    value: int = getattr(getattr(change(override(base, {setting: NOT_SET})), group), name)
    return value if value > NOT_SET else None  # what cannot be is refused later


def _wants_transformer(base: Config, change: Change) -> bool:
    """Whether the user says so, or sets what only a transformer has."""

    def changed(setting: str, value: object) -> object:
        return getattr(change(override(base, {setting: value})).encoder, setting.split(".")[1])

    if changed("encoder.kind", "conv") == "vit":
        return True
    return changed("encoder.kind", "vit") == "vit" and any(
        changed(setting, one) == changed(setting, other)
        for setting, (one, other) in OF_TRANSFORMERS.items()
    )


def _wanted_batch(facts: DataFacts) -> int:
    n, cuda = facts.pictures, facts.device == "cuda"
    if facts.grey_drawings:
        return 64 if n < 5000 else 256 if cuda else 128
    roomy = 1024 if facts.memory_bytes > 60e9 else 256
    return 64 if not cuda else 128 if n < 20_000 else roomy if n > 500_000 else 256


def _batch(facts: DataFacts) -> Choice:
    wanted = _wanted_batch(facts)
    limit = max(facts.pictures // 4, min(8, facts.pictures))
    batch = 1 << (min(wanted, limit).bit_length() - 1)
    reason = f"suits {facts.pictures:,} pictures on {_device(facts)}"
    if batch < wanted:
        reason = f"{wanted} wanted, but an epoch of {facts.pictures} pictures needs several steps"
    return Choice("optim.batch_size", batch, reason, warning=batch < wanted)


def _count(base: Config) -> Choice:
    count = base.heads.count
    return Choice("heads.count", count, "the ensemble; the paper's" if count > 1 else "no ensemble")


def _share(config: Config, facts: DataFacts) -> Choice:
    """For few pictures: tried on digits, and on photographs at 64 and at 160 pixels."""
    if config.heads.count > 1 and config.loss.weighting in ("ent", "unif"):
        large = facts.short_side >= LARGE_SIDE and facts.device == "cuda"
        gain = (
            "+0.8 points in 13-shot at 160 px, not resolved"
            if large
            else "+0.8 points in 1-shot over one head at 64 px"
        )
        gain = "+2 points in 1-shot on digits" if facts.grey_drawings else gain
        why = f"one codebook for all heads: {gain}; --recipe dino-star-ent gives each its own"
        return Choice("heads.share", "codebook", why)
    return Choice("heads.share", None, "one codebook gained with several heads, `ent` and `unif`")


def _codes(base: Config, batch: int, wanted: int) -> Choice:
    targets = 2 * batch
    if base.loss.target == "none" and wanted > batch // 2:
        held = max(2, batch // 2)
        reason = (
            f"{wanted} wanted, but ME-MAX alone lets a few win where pictures of a step are few"
        )
        return Choice("heads.codes", held, reason, warning=True)
    if wanted <= targets:
        return Choice("heads.codes", wanted, f"no more than the {targets} targets of a step")
    reason = f"{wanted} wanted, but a step has only 2 x {batch} targets to spread over them"
    return Choice("heads.codes", targets, reason, warning=True)


def _parts(config: Config, facts: DataFacts) -> Choice:
    batch, memory = config.optim.batch_size, facts.memory_bytes
    divisors = [parts for parts in range(1, batch + 1) if batch % parts == 0]
    parts = next((d for d in divisors if _peak(config, d, facts) <= 0.7 * memory), batch)
    step = _peak(config, parts, facts)
    reason = f"a step takes about {step / 1e9:.2g} of {memory / 1e9:.1f} GB"
    if parts > 1:
        reason = f"a batch in {parts} parts, for memory: {reason}"
    return Choice("optim.accumulate", parts, reason, parts > 1)


def _peak(config: Config, parts: int, facts: DataFacts) -> float:
    return peak_bytes(override(config, {"optim.accumulate": parts}), facts.device)
