"""Pictures with their nearest neighbours, and where a transformer looks."""

import shlex
from collections.abc import Callable, Sequence

from wessl.report.markup import Markup, absent, finite, join, number, percent, picture, tag
from wessl.report.story import PICTURED, State, Story, listed, part
from wessl.report.words import count

Draw = Callable[[State], Markup | None]


def neighbours(stories: Sequence[Story]) -> Markup:
    return _each(stories, _neighbours, "No neighbours were looked up yet:")


def attention(stories: Sequence[Story]) -> Markup | None:
    """None where no run has a transformer."""
    looking = [s for s in stories if s.group("encoder").get("kind") != "conv"]
    return _each(looking, _attention, "No attention maps yet:") if looking else None


def _each(stories: Sequence[Story], draw: Draw, words: str) -> Markup:
    several, parts, calls, first = len(stories) > 1, [], [], True
    for story in stories[:PICTURED]:
        drawn = [m for found in story.of_kind("gallery")[-1:] if (m := draw(found)) is not None]
        if not drawn:
            calls.append(f"wessl evaluate {shlex.quote(str(story.path))} --train DIR --test DIR")
        elif several:
            title = tag("summary", story.name)
            parts.append(tag("details", title, drawn, open=first, class_="part"))
            first = False
        else:
            parts += drawn
    if calls:
        parts.append(absent(words, calls))
    return join([parts, elsewhere(stories)])


def elsewhere(stories: Sequence[Story]) -> Markup | None:
    """Where to find the pictures of runs beyond the first few."""
    others = stories[PICTURED:]
    calls = (f"wessl report {shlex.quote(str(story.path))}" for story in others)
    return (
        absent("The pictures of the other runs are in their own reports:", calls)
        if others
        else None
    )


def _neighbours(found: State) -> Markup | None:
    samples = [_sample(one) for one in listed(found, "samples")]
    drawn = [sample for sample in samples if sample is not None]
    if not drawn:
        return None
    return join([tag("p", _words(found)), tag("ul", drawn, class_="neighbours")])


def _words(found: State) -> str:
    searched = count(found.get("searched"), "picture")
    sentence = (
        f"On the left a picture, then the pictures whose features are nearest to its own, among "
        f"{searched}; beneath each, the {found.get('similarity', 'similarity')}."
    )
    same = finite(found.get("same_label"))
    if same is None:
        return sentence
    luck = finite(found.get("chance"))
    chance = "" if luck is None else f"; by chance it would be {percent(luck)}"
    return (
        f"{sentence} Of the neighbours of all pictures, {percent(same)} have the label of their "
        f"picture{chance}. ≠ marks another label."
    )


def _sample(one: State) -> Markup | None:
    image = picture(one.get("thumbnail"), _name(one))
    if image is None:
        return None
    label = one.get("label")
    query = tag("figure", image, class_="query")
    shots = []
    for other in listed(one, "neighbours"):
        near = picture(other.get("thumbnail"), _name(other))
        if near is None:
            continue
        differs = label is not None and other.get("label") != label
        words = f"{'≠ ' * differs}{number(other.get('similarity'), 3)}"
        shots.append(
            tag("figure", near, tag("figcaption", words), title=_name(other),
                class_="differs" if differs else None)
        )  # fmt: skip
    return tag("li", tag("span", _name(one), class_="who"), query, shots)


def _name(one: State) -> str:
    label = one.get("label")
    return f"picture {one.get('index', '?')}" if label is None else str(label)


def _attention(found: State) -> Markup | None:
    maps = part(found, "attention")
    rows = [row for one in listed(maps, "samples") if (row := _looks(one)) is not None]
    if not rows:
        return None
    words = (
        f"Where the [CLS] token of the last block (number {maps.get('block', '?')}) looks: first "
        "the picture as the encoder sees it, then the mean of its attention heads, then each "
        "head. Bright is where most of the attention goes, each map on its own scale. These are "
        "the transformer's attention heads, not the projection heads of the ensemble."
    )
    return join([tag("p", words), tag("ul", rows, class_="looks")])


def _looks(one: State) -> Markup | None:
    image = picture(one.get("thumbnail"), _name(one))
    mean = picture(one.get("mean"), f"mean attention on {_name(one)}")
    if image is None or mean is None:
        return None
    heads = one.get("heads") if isinstance(one.get("heads"), list) else []
    shots = [(image, _name(one)), (mean, "mean")]
    for i, uri in enumerate(heads or []):
        shot = picture(uri, f"attention head {i} on {_name(one)}")
        shots += [(shot, f"head {i}")] if shot is not None else []
    return tag(
        "li", [tag("figure", s, tag("figcaption", words), title=words) for s, words in shots]
    )
