"""Markup that escapes by default: text from outside becomes markup only through ``tag``."""

import base64
import html
import math
import re
import struct
from collections.abc import Iterable
from typing import Any

Child = Any
"""Text, ``Markup``, a number, None (nothing), or any nesting of these."""


class Markup(str):
    """Text that is markup already, so that it is not escaped again."""


def tag(element: str, /, *children: Child, **attributes: Any) -> Markup:
    """An element; ``class_`` and ``aria_label`` are written ``class`` and ``aria-label``.

    >>> tag("p", "1 < 2", tag("b", "so"), class_="note")
    '<p class="note">1 &lt; 2<b>so</b></p>'
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if element in ("img", "meta"):
        return Markup(f"<{element}{written}>")
    return Markup(f"<{element}{written}>{join(children)}</{element}>")


def _attribute(key: str, value: Any) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'


def join(children: Iterable[Child]) -> Markup:
    return Markup("".join(_child(child) for child in children))


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        return html.escape(child)
    if isinstance(child, Iterable):
        return join(child)
    return html.escape(str(child))


PICTURE = re.compile(r"data:image/(png|jpeg|webp|gif);base64,[A-Za-z0-9+/]+={0,2}")


def picture(uri: Any, words: str, **attributes: Any) -> Markup | None:
    """A picture kept in the page itself; whatever is not one is left out."""
    if not isinstance(uri, str) or not PICTURE.fullmatch(uri):
        return None
    side = _png_side(uri)
    kind = "pixels" if side is not None and side <= 32 else None
    classes = " ".join(filter(None, (attributes.pop("class_", None), kind))) or None
    return tag("img", src=uri, alt=words, class_=classes, decoding="async", **attributes)


def _png_side(uri: str) -> int | None:
    """The longer side in pixels: small pictures are enlarged without blur."""
    if not uri.startswith("data:image/png"):
        return None
    head = base64.b64decode(uri.split(",", 1)[1][:32])
    return max(struct.unpack(">II", head[16:24])) if len(head) >= 24 else None


MISSING = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"


def finite(value: Any) -> float | None:
    """A number that can be drawn, or None: rows hold null where a number was NaN."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and abs(value) < 1e100 else None


def number(value: Any, digits: int = 2) -> str:
    """
    >>> number(1234.5, 1), number(-0.5), number(None), number(float("nan"))
    ('1,234.5', '−0.50', '–', '–')
    """
    known = finite(value)
    return MISSING if known is None else f"{known:,.{digits}f}".replace("-", MINUS)


def percent(share: Any, digits: int = 1) -> str:
    """
    >>> percent(0.1234) == "12.3\N{NO-BREAK SPACE}%", percent(None)
    (True, '–')
    """
    known = finite(share)
    return MISSING if known is None else f"{number(100 * known, digits)}\N{NO-BREAK SPACE}%"


def signed(share: float) -> str:
    """A difference of two shares, in points.

    >>> signed(0.012), signed(-0.2)
    ('+1.2', '−20.0')
    """
    return f"{100 * share:+.1f}".replace("-", MINUS)


def command(words: str) -> Markup:
    """A command to type, which selects as a whole."""
    return tag("pre", tag("code", words), class_="command")


def absent(words: str, calls: Iterable[str]) -> Markup:
    """What is not there, and the commands that make it."""
    return tag("div", tag("p", words), command("\n".join(calls)), class_="absent")
