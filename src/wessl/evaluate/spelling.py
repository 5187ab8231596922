"""The names of protocols as a user writes them, in one spelling."""

import re

from wessl.errors import UserError

_FIXED = {
    "knn": "k-NN",
    "nn": "k-NN",
    "nearestneighbours": "k-NN",
    "nearestneighbors": "k-NN",
    "linear": "linear",
    "linearfast": "linear-fast",
    "fastlinear": "linear-fast",
}


def settle(name: str) -> str:
    """A name in one spelling.

    >>> settle("kNN"), settle("05 shots"), settle("1shot"), settle("1.0 %"), settle("linear_fast")
    ('k-NN', '5-shot', '1-shot', '1%', 'linear-fast')
    """
    plain = re.sub(r"[\s_-]+", "", name.lower())
    if (fixed := _FIXED.get(plain)) is not None:
        return fixed
    shots = parse_shots(name)
    return f"{shots}-shot" if isinstance(shots, int) else f"{100 * shots:g}%"


def parse_shots(name: str) -> int | float:
    """How many labels a class: a whole number, or a share."""
    plain = name.strip().lower()
    if (match := re.fullmatch(r"(\d+)[\s_-]*shots?", plain)) and int(match[1]) > 0:
        return int(match[1])
    share = re.fullmatch(r"(\d+\.?\d*|\.\d+)\s*(?:%|percent)", plain)
    if share and 0 < float(share[1]) <= 100:
        return float(share[1]) / 100
    raise UserError(
        f"--protocols {name!r} is unknown; choose from 1-shot (any number), 1% (any share), k-NN, "
        "linear, linear-fast"
    )


def settle_all(words: tuple[str, ...]) -> tuple[str, ...]:
    """Each name once, in one spelling; `5 shot` without quotes is two words, and one name.

    >>> settle_all(("1", "shot", "knn", "k-NN", "2-shot,1%"))
    ('1-shot', 'k-NN', '2-shot', '1%')
    """
    text = re.sub(
        r"(?<![^\s,])([\d.]+)[\s,]+(shots?|%|percent)(?![^\s,])", r"\1\2", " ".join(words)
    )
    return tuple(dict.fromkeys(settle(name) for name in re.split(r"[\s,]+", text) if name))
