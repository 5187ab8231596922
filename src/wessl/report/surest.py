"""The pictures each head is surest of, and those the heads disagree about."""

from collections.abc import Sequence

from wessl.report.markup import Markup, join, number, picture, tag
from wessl.report.story import State, listed, part
from wessl.report.words import count

SHOWN_HEADS = 16


def surest(found: State) -> Markup | None:
    gallery = part(found, "gallery")
    lines = [
        (f"head {i}", _strip(listed(head, "sure"), gallery, "entropy"))
        for i, head in enumerate(listed(found, "per_head"))
    ]
    drawn = [tag("li", tag("span", name, class_="who"), strip) for name, strip in lines if strip]
    if not drawn:
        return None
    rest = drawn[SHOWN_HEADS:]
    more = (
        tag("details", tag("summary", count(len(rest), "more head")),
            tag("ul", rest, class_="strips"), class_="part")
        if rest
        else None
    )  # fmt: skip
    return join([
        tag("h3", "Pictures each head is surest of"),
        tag("p", "Beneath each, the entropy of its assignment in nats.", class_="note"),
        tag("ul", drawn[:SHOWN_HEADS], class_="strips"),
        more,
    ])  # fmt: skip


def disagreed(found: State) -> Markup | None:
    strip = _strip(listed(found, "disagreed"), part(found, "gallery"), "agreement")
    if strip is None:
        return None
    mean = number(part(found, "agreement").get("mean"))
    return join([
        tag("h3", "Pictures the heads disagree about most"),
        tag("p", f"Beneath each, the agreement of the heads; over all pictures it is {mean}.",
            class_="note"),
        tag("ul", tag("li", strip), class_="strips"),
    ])  # fmt: skip


def _strip(pictures: Sequence[State], gallery: State, key: str) -> Markup | None:
    shots = []
    for one in pictures:
        kept = part(gallery, str(one.get("index")))
        image = picture(kept.get("thumbnail"), str(kept.get("name", "a picture")))
        if image:
            words = tag("figcaption", number(one.get(key)))
            shots.append(tag("figure", image, words, title=str(kept.get("name", ""))))
    return tag("div", shots, class_="strip") if shots else None
