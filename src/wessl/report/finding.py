"""The sentence at the top of the page: what a hurried reader should take away."""

import math
from collections.abc import Sequence

from wessl.report.collect import collect
from wessl.report.markup import finite, percent, signed
from wessl.report.measured import Measured, Row, paired_error
from wessl.report.probed import by_chance, knn_points, knn_words, of_pictures
from wessl.report.seeds import Method, gain, methods
from wessl.report.story import Story, numbers, part
from wessl.report.words import count, place_words


def finding_words(stories: Sequence[Story]) -> str:
    """The sentence a hurried reader should take away."""
    if len(stories) > 1:
        return compared_words(stories)
    story = stories[0]
    if story.troubles:
        more = len(story.troubles) - 1
        rest = f" {count(more, 'other finding')} below." if more else ""
        wrong = f"Something is wrong: {story.troubles[-1].words}{rest}"
        return " ".join(filter(None, [wrong, test_words(story)]))
    tested = test_words(story)
    learnt = knn_words(story) or loss_words(story, bool(tested))
    return (
        " ".join(filter(None, [progress_words(story), learnt, tested]))
        or "This run has recorded nothing yet."
    )


def progress_words(story: Story) -> str:
    done = story.steps
    if done and done[0] < done[1]:
        return f"Unfinished: {100 * done[0] / done[1]:.0f} % of the steps are done."
    return ""


def loss_words(story: Story, tested: bool) -> str:
    losses = [loss for row in story.rows if (loss := finite(row.get("loss"))) is not None]
    if not losses:
        return ""
    codes = finite(story.rows[-1].get("codes"))
    scale = f" (uniform guessing: {math.log(codes):.2f})" if codes and codes > 1 else ""
    unknown = "; without labels nothing here says yet how good the features are"
    words = f"The loss went from {losses[0]:.2f} to {losses[-1]:.2f}{scale}"
    return f"{words}{unknown * (not tested)}."


def test_words(story: Story) -> str:
    """The first column of the run's first evaluation, beside what it should beat."""
    every = collect([story])
    for measured in (one for found in every for one in found.by_network):
        rows = {row.role: row for row in measured.rows}
        own = rows["run"].accuracy(measured.main) if "run" in rows else None
        if own is None:
            continue
        names = {"pixels": "raw pixels", "random": "an untrained encoder"}
        bases = {names[role]: row for role, row in rows.items() if role in names}
        others = {
            n: a for n, row in bases.items() if (a := row.accuracy(measured.main)) is not None
        }
        against = " and ".join(f"{percent(a)} for {name}" for name, a in others.items())
        lost = [name for name, a in others.items() if own <= a]
        unsure = [name for name in others if name not in lost and doubtful(measured, bases[name])]
        verdicts = [f"not better than {' or '.join(lost)}"] if lost else []
        verdicts += [f"not surely better than {' or '.join(unsure)}"] if unsure else []
        verdicts += guessing_words(measured)
        good = f" ({measured.too_good})" if measured.too_good else ""
        of = " of the student" * measured.runs[0].student
        return (
            f"{measured.main} accuracy{of} on {place(measured, len(every))} is {percent(own)}{good}"
            + (f", against {against}" if against else "")
            + (f": {' and '.join(verdicts)}." if verdicts else ".")
        )
    return ""


def doubtful(measured: Measured, base: Row) -> bool:
    """Whether the run's gain on a baseline may be chance, by its paired interval."""
    for number, kept in measured.gains:
        if (number, kept.get("role")) == (measured.runs[0].run, base.role):
            ends = numbers(part(part(kept, "results"), measured.main).get("interval"))
            return ends is not None and len(ends) == 2 and max(ends) >= 0
    return False


def guessing_words(measured: Measured) -> list[str]:
    """That all runs may as well guess, if so."""
    guessed = [measured.guessed(row, measured.main) for row in measured.runs]
    if not guessed or not all(guessed):
        return []
    classes = count(measured.train.get("classes"), "class", "classes")
    return [f"not surely better than guessing ({percent(measured.chance)} with {classes})"]


def compared_words(stories: Sequence[Story]) -> str:
    troubled = [story.name for story in stories if story.troubles]
    warning = f" Something is wrong in {', '.join(troubled)}: see below." if troubled else ""
    every = collect(stories)
    for measured in (one for found in every for one in found.by_network):
        scores = [
            (a, row) for row in measured.runs if (a := row.accuracy(measured.main)) is not None
        ]
        if [row.run for _, row in scores] == list(range(len(stories))):
            words = best_method(measured, methods(measured, stories), len(every))
            words = words or best_run(measured, scores, len(every))
            also = [measured.too_good] if measured.too_good else []
            also += [f"all are {one}" for one in guessing_words(measured)]
            return words + "".join(f" {one[0].upper()}{one[1:]}." for one in also) + warning
    ends = [(points[-1], s.name) for s in stories if (points := knn_points(s))]
    learnt = {part(story.header, "data").get("digest") for story in stories}
    if len(ends) == len(stories) and len(learnt) == 1:
        (best, name), (second, other) = sorted(ends, key=lambda end: -end[0].accuracy)[:2]
        words = gap(name, best.accuracy, other, second.accuracy)
        unsure = ", within chance" if by_chance(best, second) else ""
        of = of_pictures(best) if best.pictures == second.pictures else ""
        return f"k-NN accuracy{of} at the end is {words}{unsure}.{warning}"
    return f"{len(stories)} runs side by side; not all were measured alike.{warning}"


def best_method(measured: Measured, found: Sequence[Method], sets: int) -> str:
    """Of methods trained from several seeds, the best mean and how far it is from the first, the
    base of the comparison, or from the next best if it is the first; nothing for fewer than two."""
    if len(found) < 2:
        return ""
    column = measured.main
    means = [(mean[0], method) for method in found if (mean := method.mean(column))]
    (best, first), runner_up = sorted(means, key=lambda pair: -pair[0])[:2]
    second, other = runner_up if first is means[0][1] else means[0]
    error = (gain(first, other, column) or (0.0, None))[1]
    over = "" if error is None else f" (± {100 * error:.1f}, a standard error over the seeds)"
    words = gap(first.name, best, other.name, second)
    where = place(measured, sets)
    return f"Mean {column} accuracy on {where} is {words}{over}." + unbeaten(measured, best)


def best_run(measured: Measured, scores: list[tuple[float, Row]], sets: int) -> str:
    """The best and how far it is from the first, the base of the comparison, or from the next best
    if it is the first."""
    (best, first), runner_up = sorted(scores, key=lambda pair: -pair[0])[:2]
    second, other = runner_up if first is scores[0][1] else scores[0]
    column = measured.main
    words = gap(first.name, best, other.name, second) + spread(measured, first, other)
    where = place(measured, sets)
    return f"{column} accuracy on {where} is {words}." + unbeaten(measured, best)


def spread(measured: Measured, first: Row, other: Row) -> str:
    """How sure a difference is: its paired interval, or the error over the draws."""
    if ends := measured.gain(first, other, measured.main):
        low, high = (signed(end) for end in ends)
        sure = "" if ends[0] > 0 else ", so not surely"
        return f" (95 % interval {low} to {high}{sure})"
    error = paired_error(first.of(measured.main), other.of(measured.main))
    return "" if error is None else f" (± {100 * error:.1f}, a standard error over the draws)"


def place(measured: Measured, sets: int) -> str:
    """The test pictures; by name where the page tells of several sets."""
    if sets > 1 and measured.test.get("location"):
        return f"the test pictures of {place_words(measured.test)}"
    return place_words(dict(measured.test, location="the test pictures"))


def unbeaten(measured: Measured, best: float) -> str:
    better = [
        f"{row.name}, {percent(a)}"
        for row in measured.rows
        if row.role != "run" and (a := row.accuracy(measured.main)) is not None and a >= best
    ]
    return f" That is no more than {' or '.join(better)}." if better else ""


def gap(name: str, best: float, other: str, second: float) -> str:
    if best - second < 0.0005:
        return f"the same for {name} and {other}, {percent(best)}"
    points = f"{100 * (best - second):.1f} points"
    return f"highest for {name}, {percent(best)}: {points} more than for {other}"
