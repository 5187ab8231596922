"""The model card: README.md beside the weights, for whoever finds them without us."""

from typing import Any

from wessl.encoder.vit import ViT
from wessl.export.card_results import results
from wessl.export.markdown import plain, public
from wessl.export.source import Source, State
from wessl.export.told import Told

_BY = (
    " It was trained without labels by wessl, with an ensemble of heads and weighted losses "
    "(Ruan et al., *Weighted Ensemble Self-Supervised Learning*, ICLR 2023); the heads were left "
    "behind."
)
_TAGS = ("image-feature-extraction", "self-supervised-learning", "wessl")


def card(source: Source, told: Told) -> str:
    name = plain(public(source.path.absolute()))
    parts = [
        _front(told),
        f"# {name}: an image encoder",
        _encoder(source) + (_BY if source.header.get("config") else ""),
        f"## How to load it\n\n```python\n{told.load('.')}\n```",
        "\n".join(f"- {fact}" for fact in told.facts),
        f"## What goes in\n\n{_pictures(source.described, told.normalises)}",
        f"## Data\n\n{_data(source)}",
        f"## Training\n\n{_training(source)}",
        f"## Results\n\n{results(source)}",
        "## Licence\n\nLicence of these weights: _to be filled in by whoever publishes them; the "
        "training pictures may bind it._",
    ]
    return "\n\n".join(parts) + "\n"


def _front(told: Told) -> str:
    tags = "".join(f"\n  - {tag}" for tag in _TAGS[1:])
    return (
        "---\n# license: to be filled in\n"
        f"library_name: {told.library}\npipeline_tag: {_TAGS[0]}\ntags:{tags}\n---"
    )


def _encoder(source: Source) -> str:
    encoder, d = source.encoder.encoder, source.encoder.dim
    size = sum(p.numel() for p in encoder.parameters()) / 1e6
    if isinstance(encoder, ViT):
        blocks, heads = _count(encoder.depth, "block"), _count(encoder.heads, "attention head")
        kind = f"A vision transformer, {blocks} with {heads}"
        return (
            f"{kind}, patches of {encoder.patch_size} pixels, {size:.1f} million parameters; it "
            f"turns a picture into {d} features (`[CLS]`), and as many for each patch."
        )
    return (
        f"A small convolutional network of {size:.1f} million parameters; it turns a picture into "
        f"{d} features and as many for each of its last cells."
    )


def _pictures(said: State, normalises: bool) -> str:
    size, resize = said["image_size"], said["resize"]
    values = "; ".join(
        f"{word} {', '.join(f'{x:.6g}' for x in said[key])}"
        for key, word in (("mean", "mean"), ("std", "standard deviation"))
    )
    last = "; the model itself then normalises each" if normalises else ", each"
    return (
        f"Pictures with {_count(said['channels'], 'channel')}, pixels from 0 to 1: the short side "
        f"resized to {resize} (bicubic, antialiased), the middle {size} x {size} cut out{last} "
        f"channel {'' if normalises else 'normalised '}by {values}."
    )


def _data(source: Source) -> str:
    data, config = _part(source.header, "data"), _part(source.header, "config")
    if not data:
        return "Not known: the weights came as a file."
    kind = {1: "grey", 3: "colour"}.get(config.get("channels", 0), "many-channel")
    words = (
        f"{_number(data.get('pictures'))} {kind} pictures, “{plain(public(data.get('location')))}”"
    )
    left = data.get("skipped")
    bad = f"; {_count(left, 'file')} could not be read and were left out" if left else ""
    return f"{words}, without their labels{bad}. _What they show, who may use them: to be told._"


def _training(source: Source) -> str:
    header = source.header
    config = _part(header, "config")
    if not config:
        return "Not known: the weights came as a file."
    heads, loss, optim = (_part(config, part) for part in ("heads", "loss", "optim"))
    m = heads.get("count", 0)
    weighted = f", weighted by `{_code(loss.get('weighting'))}`" if m != 1 else ""
    if m != 1 and (share := heads.get("share")):
        weighted = f", one {_code(share)} for all{weighted}"
    lines = [
        f"Recipe `{_code(config.get('recipe'))}`: {_count(m, 'head')} of "
        f"{_number(heads.get('codes'))} codes{weighted}.",
        f"{_count(optim.get('epochs'), 'epoch')} in batches of {_number(optim.get('batch_size'))}, "
        f"peak learning rate {_number(optim.get('lr'))}, seed {_number(config.get('seed'))}.",
        "The encoder is the teacher, the running average of what was trained.",
    ]
    if init := _part(header, "init"):
        lines.append(f"It began from the weights “{plain(public(init.get('path')))}”.")
    if versions := _part(header, "versions"):
        made = ", ".join(f"{plain(name)} {plain(value)}" for name, value in versions.items())
        lines.append(f"Versions: {made}; device: {plain(header.get('device', 'not recorded'))}.")
    return "\n".join(f"- {line}" for line in lines)


def _part(state: State, name: str) -> State:
    value = state.get(name)
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> str:
    known = isinstance(value, (int, float)) and not isinstance(value, bool)
    return (f"{value:,}" if isinstance(value, int) else f"{value:,g}") if known else "?"


def _count(value: Any, one: str) -> str:
    return f"{_number(value)} {one}{'s' * (value != 1)}"


def _code(value: Any) -> str:
    """Inside a code span nothing is escaped, and a backtick would end it."""
    return " ".join(str(value).replace("`", "'").split())
