"""What a run was and what came of it, in sentences."""

import math
from typing import Any

from wessl.report.markup import Markup, finite, join, number, tag
from wessl.report.story import State, Story, numbers, part

WEIGHTINGS = {
    "unif": "all heads counting the same",
    "unif-all": "every head learning from every head alike",
    "prob": "a head counting more for the codes its student finds likely",
    "prob-te": "a head counting more for the codes its teacher finds likely",
    "prob-max": "only the head whose student finds a code likeliest counting for it",
    "prob-max-te": "only the head whose teacher finds a code likeliest counting for it",
    "ent": "a head counting more on pictures its teacher is sure of",
    "ent-st": "a head counting more on pictures its student is sure of",
    "kl": "pairs of heads counting by how far they disagree",
    "var": "a head counting more where its teacher's prediction is concentrated",
}
SIZES = {"T": "Tiny", "S": "Small", "B": "Base", "L": "Large"}


def count(n: Any, one: str, many: str | None = None) -> str:
    """
    >>> count(1, "head"), count(1297, "picture")
    ('1 head', '1,297 pictures')
    """
    known = finite(n)
    if known is None:
        return f"an unknown number of {many or one + 's'}"
    return f"{known:,.0f} {one if known == 1 else many or one + 's'}"


def place_words(side: State, otherwise: str = "?") -> str:
    """Where pictures lie, and how large they were shown where that was another size than usual.

    >>> place_words(dict(location="test")), place_words(dict(location="test", seen_at=224))
    ('test', 'test (seen at 224 pixels)')
    """
    return f"{side.get('location', otherwise)}{size_words(side)}"


def size_words(side: State) -> str:
    seen_at = finite(side.get("seen_at"))
    return f" (seen at {seen_at:.0f} pixels)" if seen_at else ""


def too_good_words(test: State) -> str:
    """For wherever a number stands: how many of its test pictures had been seen labelled.

    >>> too_good_words(dict(pictures=240, in_train=3)), too_good_words(dict(pictures=240))
    ('too good: 3 of 240 test pictures are among the labelled ones', '')
    """
    known, every = finite(test.get("in_train")) or 0.0, test.get("pictures")
    if not known:
        return ""
    which = "all" if known == finite(every) else f"{number(known, 0)} of {number(every, 0)}"
    return f"too good: {which} test pictures are among the labelled ones"


def time_words(seconds: float | None) -> str:
    """
    >>> time_words(45), time_words(600), time_words(9000)
    ('45 seconds', '10 minutes', '2.5 hours')
    """
    if seconds is None:
        return "an unknown time"
    if seconds < 99.5:
        return count(round(seconds), "second")
    if seconds < 5700:
        return count(round(seconds / 60), "minute")
    return f"{seconds / 3600:.1f} hours"


def encoder_words(story: Story) -> str:
    encoder = story.group("encoder")
    if encoder.get("kind") == "conv":
        widths = numbers(encoder.get("widths")) or [math.nan]
        sizes = " to ".join(number(width, 0) for width in (widths[0], widths[-1]))
        return f"a small convolutional network ({sizes} channels)"
    patch, side = encoder.get("patch_size", "?"), encoder.get("image_size", "?")
    changed = {
        name: encoder[key]
        for key, name in (("dim", "wide"), ("depth", "blocks"), ("heads", "attention heads"))
        if encoder.get(key) is not None
    }
    if changed:
        parts = ", ".join(
            f"{value} {name.removesuffix('s') if value == 1 else name}"
            for name, value in changed.items()
        )
        return f"a vision transformer ({parts}; patches of {patch} in pictures of {side} pixels)"
    size = SIZES.get(str(encoder.get("size")), str(encoder.get("size")))
    return f"a vision transformer (ViT-{size}/{patch} at {side} pixels)"


def device_words(story: Story) -> str:
    """Only what the run folder proves."""
    device = story.header.get("device") or part(story.header, "options").get("device")
    if isinstance(device, str) and device != "auto":
        return "on the CPU" if device == "cpu" else f"on {device}"
    if any(row.get("mfu") is not None for row in story.rows):
        return "on a GPU"
    torch = str(part(story.header, "versions").get("torch", ""))
    return "on the CPU" if torch.endswith("+cpu") else ""


def trained_words(story: Story) -> Markup:
    """One paragraph: what was trained on what, how, for how long."""
    data, heads, loss = part(story.header, "data"), story.group("heads"), story.group("loss")
    optim, config = story.group("optim"), story.config
    colours = {1.0: "grey", 3.0: "colour"}
    colour = colours.get(finite(config.get("channels")) or 0.0, "many-channel")
    encoder = encoder_words(story)
    sentences: list[Any] = [
        encoder[0].upper() + encoder[1:],
        f" learnt from {number(data.get('pictures'), 0)} {colour} pictures of ",
        tag("code", str(data.get("location", "an unknown place"))),
        ", without their labels, by ",
        tag("code", str(config.get("recipe", "?"))),
        f": {heads_words(heads, loss)}. ",
    ]
    init = part(story.header, "init")
    if init:
        sentences += ["It began from the weights ", tag("code", str(init.get("path"))), ". "]
    passes = finite(optim.get("epochs"))
    done = story.steps
    if done and done[0] < done[1]:
        sentences.append(f"So far it took {done[0]:,} of {count(done[1], 'step')}")
    else:
        times = "?" if passes is None else f"{passes:,.4g}"
        sentences.append(f"It saw each picture {times} time{'s' * (passes != 1)}")
        sentences.append(f" ({count(done[0], 'step')}" if done else " (no step recorded")
        sentences.append(f" of {number(optim.get('batch_size'), 0)} pictures)")
    if story.seconds is not None:
        sentences.append(f" in {time_words(story.seconds)} {device_words(story)}".rstrip())
    sentences.append(f". Seed {config.get('seed', '?')}.")
    skipped = finite(data.get("skipped")) or 0
    if skipped:
        left = "was" if skipped == 1 else "were"
        sentences.append(f" {count(skipped, 'picture')} could not be read and {left} left out.")
    return join(sentences)


def heads_words(heads: State, loss: State) -> str:
    m, codes = heads.get("count"), number(heads.get("codes"), 0)
    if m == 1:
        return f"one head of {codes} codes, so no weighting"
    name = str(loss.get("weighting", "?"))
    meaning = f", {WEIGHTINGS[name]}" if name in WEIGHTINGS else ""
    shape = {
        "codebook": f"{m} heads with one codebook of {codes} codes in common",
        "projection": f"{m} codebooks of {codes} codes over one projection",
    }.get(str(heads.get("share")), f"{m} heads of {codes} codes each")
    return f"{shape}, weighted “{name}”{meaning}"
