"""What an evaluation amounts to, in sentences, where a run has little to show for its training."""

from collections.abc import Iterator, Sequence
from typing import Any

Record = dict[str, Any]
BASELINES = ("pixels", "random")


def verdict(
    rows: Sequence[Record], gains: Sequence[Sequence[Record]], columns: Sequence[str], classes: int
) -> Iterator[str]:
    """Sentences for each run that guesses, or that raw pixels or a random encoder equal.

    ``gains`` holds for each run, in the order of the rows, those of all others on it. A number that
    is higher by chance alone is no success: what counts is whether its interval excludes that.

    >>> run = dict(name="x", role="run", results={"k-NN": dict(accuracy=0.26, interval=[0.2, 0.3])})
    >>> list(verdict([run], [[]], ["k-NN"], 4))[0]
    'x is not surely better than guessing, 25.0 % with 4 classes, by any protocol.'
    """
    for run, others in zip((row for row in rows if row["role"] == "run"), gains, strict=True):
        said = [*_guessing(run, columns, classes), *_unbeaten(run, rows, others, columns)]
        yield from (words for words, _ in said)
        if any(everywhere for _, everywhere in said):
            little = f"Nothing here shows that {run['name']} has learnt much"
            yield f"{little}: train longer, or on more pictures."


def _guessing(run: Record, columns: Sequence[str], classes: int) -> Iterator[tuple[str, bool]]:
    """With each sentence, whether it holds for every protocol."""
    own = [name for name in columns if name in run["results"]]
    guessed = [name for name in own if run["results"][name]["interval"][0] <= 1 / classes]
    if guessed:
        where = " by any protocol" if guessed == own else f" ({', '.join(guessed)})"
        chance = f"{100 / classes:.1f} % with {classes} class{'es' * (classes > 1)}"
        comma = "," * (guessed == own)
        yield (
            f"{run['name']} is not surely better than guessing, {chance}{comma}{where}.",
            guessed == own,
        )


def _unbeaten(
    run: Record, rows: Sequence[Record], gains: Sequence[Record], columns: Sequence[str]
) -> Iterator[tuple[str, bool]]:
    paired = {one["name"]: one["results"] for one in gains}
    for base in (row for row in rows if row["role"] in BASELINES):
        both = [name for name in columns if name in run["results"] and name in base["results"]]
        lost = [name for name in both if _accuracy(run, name) <= _accuracy(base, name)]
        unsure = [name for name in both if paired[base["name"]][name]["interval"][1] >= 0]
        if both and lost == both:
            every = "every protocol" if len(both) > 1 else both[0]
            yield f"{run['name']} is behind {base['name']} or level with it by {every}.", True
        elif both and set(both) == {*lost, *unsure}:
            yield f"{run['name']} does not surely beat {base['name']} by any protocol.", True
        elif lost:
            yield f"{run['name']} does not beat {base['name']} ({', '.join(lost)}).", False


def _accuracy(row: Record, name: str) -> float:
    return float(row["results"][name]["accuracy"])
