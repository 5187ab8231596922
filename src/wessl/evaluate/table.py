"""Results for people: one table of encoders and protocols, and what each number means."""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

Record = dict[str, Any]
Line = tuple[str, Record, Callable[[Record | None], str]]
"""Its name, values by column, and how a value is written."""
OPTIMISTIC = ", chosen on the test pictures: optimistic"
_CHOSEN = ("strength_chosen", "neighbours_chosen", "selected_on")
_LOPSIDED = ", or in brackets both its ends where one is farther away than the other"
_NAMES = 24  # columns that names may take before they are folded


def print_comparison(record: Record, console: Console | None = None) -> None:
    """Accuracies with their 95 % intervals; below, each run's and rival's gain on the first.

    Protocols that do not fit side by side come in a table below.
    """
    rows, rivals = record["rows"], {row["name"] for row in record["rows"] if _competes(row)}
    gains = [one for one in record["differences"] if one["name"] in rivals]
    lines: list[Line] = [(row["name"], row["results"], _cell) for row in rows]
    lines += [(f"{one['name']} - {one['base']}", one["results"], _gain) for one in gains]
    optimistic = record["settings"]["select"] == "test"
    title = f"Accuracy in %{seen_at(record['test'])}{OPTIMISTIC * optimistic}"
    title += _known(record["test"])
    print_lines(title, record["columns"], lines, len(rows), console)


def _known(test: Record) -> str:
    """Where the numbers stand, not in a warning above them alone."""
    known = test.get("in_train", 0)
    if not known:
        return ""
    return f", too good: {known} of {_count(test['pictures'], 'test picture')} in training too"


def seen_at(test: Record) -> str:
    return f", seen at {test['seen_at']} pixels" if "seen_at" in test else ""


def print_transfer(
    found: Record, console: Console | None = None, differences: Sequence[Record] = ()
) -> None:
    sets = list(dict.fromkeys(name for results in found.values() for name in results))
    means = {
        name: dict(accuracy=sum(one["accuracy"] for one in results.values()) / len(results))
        for name, results in found.items()
    }
    columns = [*sets, *["mean"] * (len(sets) > 1)]
    lines: list[Line] = [
        (name, results | dict(mean=means[name]), _cell) for name, results in found.items()
    ]
    optimistic = any(on_test(one) for results in found.values() for one in results.values())
    title = "Transfer: accuracy in %" + OPTIMISTIC * optimistic
    gains = [one for one in differences if _competes(one)]
    lines += [(f"{one['name']} - {one['base']}", one["results"], _gain) for one in gains]
    print_lines(title, columns, lines, len(found), console)
    per_class = [
        name
        for name in sets
        if any(
            name in results and results[name]["protocol"]["metric"] == "mean per class"
            for results in found.values()
        )
    ]
    words = f"± is half a 95 % interval over other test pictures{_LOPSIDED}" + (
        f"; mean over classes for {', '.join(per_class)}" if per_class else ""
    )
    words += "; differences are paired, * where the interval excludes 0" * bool(gains)
    print(_wrapped(f"{words}.", None if console is None else console.width))


def print_lines(
    title: str,
    columns: list[str],
    lines: list[Line],
    first: int,
    console: Console | None,
) -> None:
    """Tables as wide as the console allows, with a rule after the first lines."""
    console = console or Console()
    written = [[write(values.get(column)) for column in columns] for _, values, write in lines]
    widths = [
        max(len(column), *(len(cells[i]) for cells in written)) for i, column in enumerate(columns)
    ]
    named = min(_NAMES, max(len(name) for name, _, _ in lines))
    for part in _abreast(widths, console.width - named - 4):
        # As Text, because in a string rich would take [names] and :names: for its markup.
        table = Table(title=title, title_justify="left")
        table.add_column("", overflow="fold", width=named)
        for i in part:
            head = Text(columns[i])
            table.add_column(head, justify="right", no_wrap=True, min_width=widths[i])
        for number, ((name, _, _), cells) in enumerate(zip(lines, written, strict=True)):
            if number == first:
                table.add_section()
            table.add_row(Text(name), *(Text(cells[i]) for i in part))
        console.print(table)


def _abreast(widths: list[int], room: int) -> Iterator[list[int]]:
    """Columns in groups that fit side by side, each with a rule and two blanks."""
    group: list[int] = []
    for i, width in enumerate(widths):
        if group and sum(widths[j] + 3 for j in group) + width + 3 > room:
            yield group
            group = []
        group.append(i)
    yield group


def _competes(row: Record) -> bool:
    return row["role"] in ("run", "also")


def on_test(result: Record) -> bool:
    """Whether the test pictures themselves chose the strength, k or learning rate."""
    said = (result["protocol"].get(key, "") for key in _CHOSEN)
    return any("the test pictures" in how for how in said)


def _cell(result: Record | None) -> str:
    if result is None:
        return ""
    if "interval" not in result:
        return f"{100 * result['accuracy']:.1f}"
    return with_interval(result["accuracy"], result["interval"])


def with_interval(share: float, interval: Sequence[float], sign: str = "") -> str:
    """In %, ± half the interval; its two ends where one is more than a fifth farther away.

    >>> with_interval(0.9, [0.88, 0.92]), with_interval(1.0, [0.8, 1.0])
    ('90.0 ±2.0', '100.0 (80.0–100.0)')
    """
    low, high = interval
    near, far = sorted((share - low, high - share))
    words = f"{100 * share:{sign}.1f}"
    if far <= 1.2 * near + 5e-4:
        return f"{words} ±{50 * (high - low):.1f}"
    between = " to " if sign else "\N{EN DASH}"
    return f"{words} ({100 * low:{sign}.1f}{between}{100 * high:{sign}.1f})"


def _gain(gain: Record | None) -> str:
    if gain is None:
        return ""
    low, high = gain["interval"]
    sure = " " if low <= 0 <= high else "*"
    return with_interval(gain["difference"], gain["interval"], "+") + sure


def explain(record: Record, width: int | None = None) -> str:
    """The protocols in words: what was chosen how, for whom, on how many pictures."""
    train, test = record["train"], record["test"]
    lines = [
        f"{_count(test['pictures'], 'test picture')} of {_count(test['classes'], 'class', 'es')} "
        f"({test['location']}); {_count(train['pictures'], 'training picture')} of "
        f"{train['classes']} ({train['location']})" + seen_at(test) + ".",
        f"± is half a 95 % interval over other labels and other test pictures{_LOPSIDED}; where "
        "there is one draw, over test pictures alone"
        + "; differences are paired, * where the interval excludes 0"
        * (sum(map(_competes, record["rows"])) > 1)
        + ".",
    ]
    for name in record["columns"]:
        measured = [
            (row["name"], row["results"][name]) for row in record["rows"] if name in row["results"]
        ]
        if measured:
            lines.append(f"{name}: {_of_all(measured)}.")
    return "\n".join(_wrapped(line, width) for line in lines)


def _of_all(results: Sequence[tuple[str, Record]]) -> str:
    """What was chosen for each and how; who shares a choice is named together."""
    takers: dict[str, dict[str, list[str]]] = {}
    for name, result in results:
        takers.setdefault(_how(result), {}).setdefault(_choice(result), []).append(name)
    alike = len(takers) == 1 and len(next(iter(takers.values()))) == 1
    said = []
    for how, choices in takers.items():
        named = [
            choice if alike else f"{choice} ({', '.join(names)})"
            for choice, names in choices.items()
        ]
        said.append(f"{'; '.join(named)}, {how}")
    return "; ".join(said)


def _choice(result: Record) -> str:
    said = result["protocol"]
    if "strength_chosen" in said:
        return f"{result['draws']} draws" if result["draws"] > 1 else "one draw"
    if "neighbours_chosen" in said:
        return f"k = {result['k']}"
    best = result["chosen"]
    return f"{best['reading']}, base learning rate {best['lr']:g}"


def _how(result: Record) -> str:
    said = result["protocol"]
    if "strength_chosen" in said:
        return f"L2 penalty {_chosen(said['strength_chosen'])}"
    if "neighbours_chosen" in said:
        return _chosen(said["neighbours_chosen"])
    return f"chosen on {said['selected_on']}"


def _chosen(how: str) -> str:
    return how if how.startswith("given") else f"chosen {how}"


def explain_confused(
    per_class: Record | None, who: str, most: int = 5, width: int | None = None
) -> str:
    """The classes that do worst and the pairs that are mixed up most; nothing if nothing is."""
    if per_class is None or not per_class["confused"]:
        return ""
    tested = [one for one in per_class["classes"] if one["accuracy"] is not None]
    worst = sorted(tested, key=lambda one: one["accuracy"])[:most]
    hard = ", ".join(f"{one['name']} ({100 * one['accuracy']:.0f} %)" for one in worst)
    pairs = ", ".join(
        f"{pair['true']} as {pair['predicted']} ({100 * pair['share']:.0f} %)"
        for pair in per_class["confused"][:most]
    )
    lines = (
        f"Hardest class{'es' * (len(worst) > 1)} for {who}, {per_class['protocol']}: {hard}.",
        f"Most confused: {pairs}.",
    )
    return "\n".join(_wrapped(line, width) for line in lines)


def _count(n: int, one: str, ending: str = "s") -> str:
    return f"{n} {one}{ending * (n != 1)}"


def _wrapped(line: str, width: int | None) -> str:
    """Broken at blanks that do not tear a number from its sign."""
    kept = line.replace(" %", "\xa0%").replace(" = ", "\xa0=\xa0")
    filled = textwrap.fill(
        kept, width or Console().width, subsequent_indent="  ", break_on_hyphens=False
    )
    return filled.replace("\xa0", " ")
