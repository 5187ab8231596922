"""Markdown to HTML: headings with anchors, code in colours, formulas as MathML."""

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import latex2mathml.converter
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.dollarmath import dollarmath_plugin
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

SHORT = 32
"""Letters of code in a sentence that stay together; more would not fit a telephone."""


@dataclass
class Rendered:
    """A page's HTML, and what others need to know of it."""

    title: str
    html: str
    headings: list[tuple[int, str, str]] = field(default_factory=list)  # level, anchor, words
    links: list[str] = field(default_factory=list)
    words: list[tuple[str, str]] = field(default_factory=list)  # anchor, text below it

    @property
    def anchors(self) -> set[str]:
        return {anchor for _, anchor, _ in self.headings}


def render(text: str, relink: Any) -> Rendered:
    """`relink` is asked for the address of every link and picture of the page."""
    parser = MarkdownIt("commonmark", {"html": True, "highlight": code})
    parser.enable(["table", "strikethrough"]).use(dollarmath_plugin, renderer=formula)
    parser.add_render_rule("code_inline", short_code)
    tokens = parser.parse(text)
    page = Rendered("", "")
    for i, token in enumerate(tokens):
        if token.type == "heading_open":
            _heading(page, token, tokens[i + 1])
        elif token.type == "inline":
            _relink(page, token, relink)
            if tokens[i - 1].type != "heading_open":
                _keep_words(page, token)
    page.html = parser.renderer.render(tokens, parser.options, {})
    page.html = re.sub(
        r"<table>.*?</table>", r'<div class="wide">\g<0></div>', page.html, flags=re.S
    )
    page.title = next((words for level, _, words in page.headings if level == 1), "")
    return page


def code(source: str, language: str, _: str) -> str:
    """In colours, where there are any for its language."""
    try:
        lexer = get_lexer_by_name(language)
    except ClassNotFound:
        return f"<pre><code>{html.escape(source)}</code></pre>"
    inner = highlight(source, lexer, HtmlFormatter(nowrap=True))
    return f'<pre class="highlight"><code>{inner}</code></pre>'


def short_code(renderer: Any, tokens: Sequence[Any], i: int, *_: Any) -> str:
    """A flag or a name stays on one line; browsers would break it after a hyphen."""
    words = tokens[i].content
    kind = ' class="short"' if len(words) <= SHORT else ""
    return f"<code{kind}>{html.escape(words)}</code>"


def formula(source: str, options: dict[str, bool]) -> str:
    """
    >>> formula("m^2", {"display_mode": False})[:5]
    '<math'
    """
    block = options["display_mode"]
    made = latex2mathml.converter.convert(source, display="block" if block else "inline")
    # It leaves no room after the name of a function: "ln c" would read as one word.
    return re.sub(r"<m[io]>(?:log|ln)</m[io]>(?!<mo[^>]*>&#x00028;)", _room_after, made)


def _room_after(name: re.Match[str]) -> str:
    return f'{name[0]}<mspace width="0.17em" />'


def slug(words: str) -> str:
    """A heading's anchor, as GitHub makes it.

    >>> slug("`prob-te`: one target for all")
    'prob-te-one-target-for-all'
    """
    return re.sub(r"[^\w\- ]", "", words.strip().lower()).replace(" ", "-")


def _heading(page: Rendered, opening: Token, inline: Token) -> None:
    words = "".join(part.content for part in inline.children or [])
    anchor, number = slug(words), 1
    while anchor in page.anchors:
        anchor, number = f"{slug(words)}-{number}", number + 1
    opening.attrSet("id", anchor)
    page.headings.append((int(opening.tag[1:]), anchor, words))
    page.words.append((anchor, ""))


def _relink(page: Rendered, token: Token, relink: Any) -> None:
    for part in token.children or []:
        for name in ("href", "src"):
            target = part.attrGet(name)
            if isinstance(target, str):
                page.links.append(target)
                part.attrSet(name, relink(target))


def _keep_words(page: Rendered, token: Token) -> None:
    said = " ".join(part.content for part in token.children or [] if part.content)
    if page.words:
        anchor, before = page.words[-1]
        page.words[-1] = (anchor, f"{before} {said}".strip())
