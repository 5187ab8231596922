"""How it was made: health, automatic choices, commands, settings and versions."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from wessl.report.collect import collect
from wessl.report.markup import MISSING, Markup, command, join, number, percent, tag
from wessl.report.repeats import groups, method_names
from wessl.report.story import State, Story, listed, part
from wessl.report.words import count, place_words

ENOUGH = 150
"""Steps after which training has said what is wrong; a shorter run looks at half of its own."""
CHECKED = (
    "collapse onto few codes, uniform predictions, heads without weight, one head with most of it, "
    "shrinking features, NaN gradients and pictures that come too slowly"
)


def health(stories: Sequence[Story]) -> Markup:
    several = len(stories) > 1
    items, warned = [], set()
    for story in stories:
        name = tag("b", f"{story.name}: ") if several else None
        for finding in story.findings:
            over = " It passed later." if finding.over else ""
            kind = "passed" if finding.over else "trouble"
            items.append(tag("li", name, finding.words, over, class_=kind))
        said = [
            *(f"Result not shown: {words}" for words in story.unreadable),
            *(f"The start warned: {words}." for words in story.warnings),
            *guessing(story),
        ]
        items += [tag("li", name, words, class_="trouble") for words in said]
        warned |= {story.name} if said else set()
    clean = [story for story in stories if not story.findings]
    words = None
    if clean:
        names = f" in {', '.join(s.name for s in clean)}" if len(clean) < len(stories) else ""
        short = all(max((row["step"] for row in s.rows), default=0) < ENOUGH for s in clean)
        caution = f", but in fewer than {ENOUGH} steps much of it cannot be" if short else ""
        other = "else " if warned & {story.name for story in clean} else ""
        words = tag(
            "p", f"Nothing {other}suspicious was found{names}{caution}. Looked for: {CHECKED}."
        )
    return join([tag("ul", items, class_="health") if items else None, words])


def guessing(story: Story) -> Iterator[str]:
    """Of the leading evaluation, if no number of it is surely better than guessing."""
    for measured in collect([story])[:1]:
        shown = [(row, c) for row in measured.runs for c in measured.columns if c in row.results]
        if shown and all(measured.guessed(row, column) for row, column in shown):
            chance = f"{percent(measured.chance)} with {number(measured.train.get('classes'), 0)}"
            yield (
                f"No accuracy on {place_words(measured.test, 'the test pictures')} is surely "
                f"better than guessing, {chance} classes: it has learnt little; train longer, or "
                "on more pictures."
            )


def choices(stories: Sequence[Story]) -> Markup | None:
    blocks = []
    for story in stories:
        made = listed(story.header, "choices")
        if not made:
            continue
        rows = [
            tag(
                "tr",
                tag("th", tag("code", str(c.get("setting", "?"))), scope="row"),
                tag("td", _value(c.get("value"))),
                tag("td", "⚠ " * bool(c.get("warning")), str(c.get("reason", ""))),
            )
            for c in made
        ]
        forced = sum(bool(c.get("warning")) for c in made)
        gave = f", {forced} that gave way (⚠)" if forced else ""
        title = f"{count(len(made), 'automatic choice')}{gave}"
        if len(stories) > 1:
            title = f"{story.name}: {title}"
        table = tag("table", tag("tbody", rows), class_="plain choices")
        inside = tag("div", table, class_="scroll")
        blocks.append(tag("details", tag("summary", title), inside, class_="part"))
    return join(blocks) if blocks else None


def made(stories: Sequence[Story]) -> Markup:
    several = len(stories) > 1
    parts: list[Any] = [choices(stories)]
    for story in stories:
        versions = ", ".join(f"{k} {v}" for k, v in part(story.header, "versions").items())
        place = tag("code", str(story.path))
        inside = [
            command(str(story.header.get("command", "(not recorded)"))),
            tag("p", f"Versions: {versions or 'not recorded'}. Folder: ", place, class_="note"),
        ]
        config = tag("pre", tag("code", json.dumps(story.config, indent=2, ensure_ascii=False)))
        title = f"{story.name}: all settings" if several else "All settings"
        parts += [tag("h3", story.name) if several else None, inside,
                  tag("details", tag("summary", title), config, class_="part")]  # fmt: skip
    return join(parts)


def differing(stories: Sequence[Story]) -> Markup | None:
    """The settings in which runs differ: what a comparison is about. Of several methods a column
    each, and the seeds only where they are not the same for all."""
    flat = [_flat(story.config) for story in stories]
    found, called = groups(stories), list(method_names(stories).values())
    if len(called) == 1:
        found, called = list(range(len(stories))), [story.name for story in stories]
    columns: dict[int, list[State]] = {}
    for method, one in zip(found, flat, strict=True):
        columns.setdefault(method, []).append(one)
    values = {
        name: [_values(same, name) for same in columns.values()]
        for name in dict.fromkeys(name for one in flat for name in one)
    }
    rows = [
        tag("tr", tag("th", tag("code", name), scope="row"), [tag("td", one) for one in every])
        for name, every in values.items()
        if len(set(every)) > 1
    ]
    if not rows:
        return tag("p", "All settings are the same.")
    head = tag("tr", tag("th", ""), [tag("th", name, scope="col") for name in called])
    table = tag("table", tag("thead", head), tag("tbody", rows), class_="plain")
    title = tag("summary", f"{count(len(rows), 'setting')} differ{'s' * (len(rows) == 1)}")
    inside = tag("div", table, class_="scroll")
    return tag("details", title, inside, class_="part", open=len(rows) <= 12)


def _values(same: Sequence[State], name: str) -> str:
    return ", ".join(dict.fromkeys(_value(one.get(name)) for one in same))


def _flat(config: State, prefix: str = "") -> State:
    """One name for each setting; kinds of views have numbers, as in flags."""
    found: State = {}
    for key, value in config.items():
        name = f"{prefix}{key}"
        if isinstance(value, list) and value and all(isinstance(one, dict) for one in value):
            value = {str(number): one for number, one in enumerate(value)}
        found |= _flat(value, f"{name}.") if isinstance(value, dict) else {name: value}
    return found


def _value(value: Any) -> str:
    if value is None:
        return MISSING
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
