"""What a classification amounts to, in words."""

import difflib
from typing import TYPE_CHECKING

from wessl.export.calibration import Calibration
from wessl.export.classify import ENOUGH

if TYPE_CHECKING:
    from wessl.verbs.classify import Classified

FEW = 3
"""Classes with fewer labels are named."""
NAMED = 10


def in_words(found: "Classified") -> str:
    labelled, classes = sum(found.counts.values()), len(found.counts)
    lines = [
        *found.notes,
        f"{labelled} labelled {_plural('picture', labelled)} of {classes} classes; "
        f"{len(found.paths):,} others to guess",
        _how_good(found),
        _how_sure(found),
        *_few(found.counts),
        *_slips(found.counts),
        *_skipped(found.skipped),
    ]
    if found.worth_labelling:
        hard, many = "it is hard to decide", "it stands for many that are like no labelled one"
        blind = found.classifier.estimate is None or found.classifier.guessing
        why = many if blind else hard
        lines += ["", f"most worth a label next, because {why}:"]
        lines += [_suggestion(found, row) for row in found.worth_labelling]
    return "\n".join(lines)


def _how_good(found: "Classified") -> str:
    estimate = found.classifier.estimate
    if estimate is None:
        return (
            f"how good: cannot be estimated, as {_too_few(found)}; look at some guesses, or label "
            "a second picture of each class"
        )
    words = f"how good: {estimate.in_words()} ({estimate.of} labels, each held out once"
    if estimate.folds < 5:
        words += (
            f"; with {_share(estimate.folds)} of the labels held out at a time this tends to be low"
        )
    if found.classifier.guessing:
        classes = len(found.counts)
        of_guesses = f"{round(100 / classes)} of 100 with {classes} classes"
        return (
            f"{words}); no better than guessing ({of_guesses}): more labels, or a longer training"
        )
    return f"{words}); true if the labelled pictures are like the others"


def _too_few(found: "Classified") -> str:
    held = found.classifier.held
    if not held:
        return "every class has one label and none can be held out"
    return f"most classes have one label, and the {held} that can be held out are of the others"


def _share(folds: int) -> str:
    return {2: "half", 3: "a third", 4: "a quarter"}.get(folds, f"1/{folds}")


def _how_sure(found: "Classified") -> str:
    classifier = found.classifier
    worth = classifier.calibration
    if worth is None:
        why = f"only {classifier.held} labels" if classifier.held else "no label"
        return (
            f"confidences: not calibrated, and how good they are is not known, as {why} could be "
            f"held out ({ENOUGH} are needed); take them as an order, not as probabilities"
        )
    if classifier.guessing:
        return "confidences: of no use, as the guesses are no better than chance"
    done = (
        f"confidences: fitted to the {classifier.held} held-out labels (temperature "
        f"{classifier.temperature:.2f}); measured on them, {worth.in_words()}{_worth(worth)}"
    )
    if classifier.estimate is None:
        return f"{done}; nothing is known of the classes with one label"
    return f"{done}; true if the labelled pictures are like the others"


def _worth(worth: Calibration) -> str:
    """Whether they may be read as probabilities, as an order, or not at all."""
    surer, rest = worth.surer.too_sure, worth.rest.too_sure
    if not surer and not rest:
        return ", no farther apart than chance has it with so few labels"
    if not worth.tells:
        return ": being sure did not mean being right more often, so do not rely on them"
    how = _direction(surer or rest)
    if surer * rest < 0:
        how = f"{how} where it is surest, {_direction(rest)} elsewhere"
    return f": they are {how}, so take them as an order, not as probabilities"


def _direction(too_sure: float) -> str:
    return "too high" if too_sure > 0 else "too low"


def _few(counts: dict[str, int]) -> list[str]:
    few = [name for name, count in counts.items() if count < FEW]
    if not few:
        return []
    if len(few) == len(counts) and len(set(counts.values())) == 1:
        each = next(iter(counts.values()))
        return [f"few labels: {each} in each class; {FEW} or more are better"]
    some = ", ".join(f"{name} ({counts[name]})" for name in few[:NAMED])
    return [f"few labels: {some}{f', and {len(few) - NAMED} more' * (len(few) > NAMED)}"]


def _slips(counts: dict[str, int]) -> list[str]:
    """Classes that may be one, of which a label was misspelt."""
    rare = [name for name, count in counts.items() if count < FEW]
    pairs = [(other, name) for name in rare for other in counts if one_letter_apart(name, other)]
    told = {tuple(sorted(pair)) for pair in pairs}
    return [
        f"warning: the labels {a!r} and {b!r} differ by one letter; if that is a slip, mend it "
        "(--classes names those there should be)"
        for a, b in sorted(told)
    ]


def one_letter_apart(a: str, b: str) -> bool:
    """One letter more, less or another; short names and other signs tell classes apart.

    >>> one_letter_apart("star", "starr"), one_letter_apart("part 1", "part 2")
    (True, False)
    """
    steps = difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes()
    changes = [(a[i:j], b[k:n]) for step, i, j, k, n in steps if step != "equal"]
    if len(changes) != 1 or min(len(a), len(b)) < 4:
        return False
    return max(map(len, changes[0])) == 1 and "".join(changes[0]).isalpha()


def _skipped(skipped: list[tuple[str, str]]) -> list[str]:
    if not skipped:
        return []
    some = "; ".join(f"{name}: {reason}" for name, reason in skipped[:5])
    more = f"; and {len(skipped) - 5} more" * (len(skipped) > 5)
    return [
        f"{len(skipped):,} unreadable {_plural('picture', len(skipped))} left out ({some}{more})"
    ]


def _suggestion(found: "Classified", row: int) -> str:
    first, second = found.labels[row], found.second[row]
    sure, less = found.confidence[row], found.second_confidence[row]
    return f"  {found.paths[row]}  {first} ({sure:.2f}) or {second} ({less:.2f})"


def _plural(word: str, count: int) -> str:
    return word if count == 1 else f"{word}s"
