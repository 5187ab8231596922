"""Which classes are hard, and what they are taken for."""

from collections.abc import Sequence

from wessl.report.columns import OPTIMISTIC, optimistic
from wessl.report.intervals import interval
from wessl.report.markup import Markup, finite, join, number, percent, tag
from wessl.report.matrices import as_array, matrix
from wessl.report.story import State, Story, listed, part
from wessl.report.words import place_words, size_words, too_good_words

MOST_CLASSES = 60
"""More classes than this are not drawn as a matrix."""
LISTED = 12


def per_class(stories: Sequence[Story]) -> Markup | None:
    """Open for one run; for several, folded, and each run's folded in it."""
    blocks = []
    for story in stories:
        told = [
            (found, result)
            for result in story.of_kind("evaluation")
            if listed(found := part(result, "per_class"), "classes")
        ]
        own = [_block(found, _by(found, result, len(told) > 1)) for found, result in told]
        if own and len(stories) > 1:
            own = [tag("details", tag("summary", story.name), own, class_="part")]
        blocks += own
    if not blocks:
        return None
    title = tag("summary", "Class by class")
    return tag("details", title, blocks, open=len(stories) == 1, class_="part")


def _by(found: State, result: State, several: bool) -> Markup | None:
    """What was looked at, and on which pictures where there are several sets."""
    name, test = _column(found, result), part(result, "test")
    if name is None:
        return None
    where = (" on ", tag("code", place_words(test))) if several else size_words(test)
    student = any(row.get("network") == "student" for row in listed(result, "rows"))
    good = f" ({too_good_words(test)})" if too_good_words(test) else None
    return tag("p", f"By {name}", " of the student" * student, where, good, ".", class_="note")


def _column(found: State, result: State) -> str | None:
    """The name of the protocol that was looked at, marked as its column is."""
    protocol = found.get("protocol")
    name = protocol.get("name") if isinstance(protocol, dict) else protocol
    own = next((part(row, "results") for row in listed(result, "rows")), {})
    return f"{name}{OPTIMISTIC * optimistic(part(own, str(name)))}" if name else None


def _block(found: State, note: Markup | None) -> Markup:
    classes = listed(found, "classes")
    names = [str(one.get("name", "?")) for one in classes]
    parts = [_hardest(classes), _confused(listed(found, "confused")), _matrix(found, names)]
    return join([note, tag("div", parts, class_="columns")])


def _hardest(classes: list[State]) -> Markup:
    known = [(a, one) for one in classes if (a := finite(one.get("accuracy"))) is not None]
    known.sort(key=lambda pair: pair[0])
    rows = [
        tag(
            "tr",
            tag("th", str(one.get("name", "?")), scope="row"),
            tag("td", bar(value), class_="bar"),
            tag("td", number(100 * value, 1)),
            tag("td", interval(one)),
            tag("td", number(one.get("pictures"), 0)),
        )
        for value, one in known[:LISTED]
    ]
    caption = "Hardest classes first" if len(known) > LISTED else "Classes, hardest first"
    heads = [tag("th", h, scope="col") for h in ("", "", "%", "95 % interval", "pictures")]
    table = tag("table", tag("caption", caption), tag("thead", tag("tr", heads)),
                tag("tbody", rows), class_="numbers classes")  # fmt: skip
    return tag("div", table, class_="scroll")


def bar(share: float) -> Markup:
    """A share of one as a bar; its number stands beside it."""
    width = f"{100 * min(1.0, max(0.0, share)):.1f}"
    return tag(
        "svg",
        tag("rect", width="100", height="8", class_="rail"),
        tag("rect", width=width, height="8", class_="fill"),
        viewBox="0 0 100 8",
        preserveAspectRatio="none",
        aria_hidden="true",
    )


def _confused(pairs: Sequence[State]) -> Markup | None:
    if not pairs:
        return None
    rows = [
        tag(
            "li",
            tag("b", str(p.get("true", "?"))),
            " taken for ",
            tag("b", str(p.get("predicted", "?"))),
            f": {percent(p.get('share'), 0)} of the class",
        )
        for p in pairs[:LISTED]
    ]
    return tag("div", tag("h4", "Confused most"), tag("ol", rows), class_="confused")


def _matrix(found: State, names: list[str]) -> Markup | None:
    counts = as_array(found.get("confusion"))
    if counts is None or len(counts) > MOST_CLASSES or len(counts) != counts.shape[1]:
        return None
    shares = counts / counts.sum(1, keepdims=True).clip(1e-12)
    labels = names if len(names) == len(counts) else None
    note = "rows true, columns predicted; share of the row"
    return matrix(shares, "Confusion", "true #", "predicted #", note, names=labels)
