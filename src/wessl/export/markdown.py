"""Words of others inside Markdown: shown as they are, whatever they contain."""

import re
from collections.abc import Sequence


def plain(text: object) -> str:
    """One line of text; what only means something where a line begins is escaped there alone.

    >>> print(plain("my_photos [2024]\\n# <b>cats</b>"))
    my\\_photos \\[2024\\] \\# \\<b\\>cats\\</b\\>
    """
    one_line = re.sub(r"([\\`*_{}\[\]<>#|~&])", r"\\\1", " ".join(str(text).split()))
    # A list's mark has a space after it, a rule or an underline nothing else.
    return re.sub(r"^(\d{0,9})([.)](?=\s|$)|[-+](?=\s|$)|[-=](?=[-=\s]*$))", r"\1\\\2", one_line)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def public(location: object) -> str:
    """A card may be published: of a path on this machine it names the last part alone.

    >>> public("/home/ann/photos/train/"), public("builtin://digits/train")
    ('train', 'builtin://digits/train')
    """
    text = str(location)
    return text if "://" in text else re.split(r"[/\\]", text.rstrip("/\\"))[-1] or "pictures"
