"""The page: sections in order, with its own style and script, and a promise to load nothing."""

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from statistics import median
from typing import NamedTuple

from wessl.report.collect import collect
from wessl.report.curves import training
from wessl.report.finding import finding_words
from wessl.report.galleries import attention, neighbours
from wessl.report.heads import heads
from wessl.report.markup import Markup, finite, join, number, percent, tag
from wessl.report.probed import knn_points, of_pictures
from wessl.report.record import differing, health, made
from wessl.report.repeats import groups, method_names
from wessl.report.scores import accuracy
from wessl.report.story import Story
from wessl.report.words import place_words, size_words, time_words, trained_words

TOLD = 3
"""Runs described without being asked."""


class Section(NamedTuple):
    id: str
    title: str
    inside: Markup | None


def page(stories: Sequence[Story]) -> str:
    """The whole document for one run, or several compared; the first is the base."""
    sections = [
        Section("health", "Health", health(stories)),
        Section("accuracy", "Accuracy", accuracy(stories)),
        Section("training", "Training", training(stories)),
        Section("heads", "Heads", heads(stories)),
        Section("neighbours", "Nearest neighbours", neighbours(stories)),
        Section("attention", "Attention", attention(stories)),
        Section("made", "How it was made", made(stories)),
    ]
    shown = [section for section in sections if section.inside]
    title = f"Run {stories[0].name}" if len(stories) == 1 else f"{len(stories)} runs compared"
    body = tag(
        "body",
        tag("header", tag("p", "wessl report", class_="kicker"), tag("h1", title),
            tag("p", finding_words(stories), class_="finding"), key_figures(stories)),
        tag("nav", [tag("a", s.title, href=f"#{s.id}") for s in shown], aria_label="Sections"),
        tag("main", trained(stories), [_section(s) for s in shown]),
        tag("footer", "Everything on this page is in this one file; it loads nothing."),
        tag("script", _file("script.js")),
    )  # fmt: skip
    head = tag("head", _meta(), tag("title", f"{title} · wessl"), tag("style", _file("style.css")))
    return "<!doctype html>\n" + tag("html", head, body, lang="en") + "\n"


def _file(name: str) -> Markup:
    return Markup(files("wessl.report").joinpath(name).read_text(encoding="utf-8"))


def _meta() -> Markup:
    """Only this page's own script may run, known by its digest: text that slips in stays text."""
    digest = base64.b64encode(hashlib.sha256(_file("script.js").encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        f"script-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    return join([
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
    ])  # fmt: skip


def _section(section: Section) -> Markup:
    title = tag("h2", section.title, id=f"{section.id}-title")
    return tag(
        "section", title, section.inside, id=section.id, aria_labelledby=f"{section.id}-title"
    )


def trained(stories: Sequence[Story]) -> Markup:
    """What was trained on what, in words."""
    if len(stories) == 1:
        return tag("section", tag("p", trained_words(stories[0])), id="trained")
    # Of the seeds of one method, the first tells all.
    firsts: dict[int, Story] = {}
    for group, story in zip(groups(stories), stories, strict=True):
        firsts.setdefault(group, story)
    items = [
        (tag("dt", name), tag("dd", trained_words(firsts[group])))
        for group, name in method_names(stories).items()
    ]
    shown, rest = items[:TOLD], items[TOLD:]
    more = tag("summary", f"{len(rest)} more in words")
    return tag(
        "section",
        tag("h2", "What was trained"),
        tag("dl", shown, class_="runs"),
        tag("details", more, tag("dl", rest, class_="runs"), class_="part") if rest else None,
        differing(stories),
        id="trained",
    )


def key_figures(stories: Sequence[Story]) -> Markup | None:
    """A few large numbers of a single run."""
    if len(stories) > 1:
        return None
    story, figures = stories[0], []
    every = collect(stories)
    for measured in every[:1]:
        where = f" on {place_words(measured.test)}" if len(every) > 1 else size_words(measured.test)
        where += f" ({measured.too_good})" if measured.too_good else ""
        figures += [
            (
                f"{measured.main} accuracy{' of the student' * row.student}{where}",
                percent(row.accuracy(measured.main)),
            )
            for row in measured.runs
        ]
    for last in knn_points(story)[-1:]:
        figures.append((f"k-NN while training{of_pictures(last)}", percent(last.accuracy)))
    if story.rows:
        speeds = [s for row in story.rows if (s := finite(row.get("images_per_second")))]
        figures += [
            ("loss", number(story.rows[-1].get("loss"), 2)),
            ("pictures a second", number(median(speeds) if speeds else None, 0)),
        ]
    if story.seconds is not None:
        figures.append(("of training", time_words(story.seconds)))
    diversity = [finite(found.get("score")) for found in story.of_kind("diversity")]
    if diversity and diversity[-1] is not None:
        figures.append(("diversity of heads", number(diversity[-1], 2)))
    items = [tag("div", tag("dd", value), tag("dt", name)) for name, value in figures]
    return tag("dl", items, class_="figures") if items else None
