"""A study's table as Markdown and CSV."""

import csv
import io
from typing import Any

State = dict[str, Any]
HEADINGS = (
    "study", "size", "cell", "series", "x", "base", "column", "unit", "mean", "sd", "n",
    "difference", "low", "high", "difference_unit", "paper_imagenet_mean", "paper_imagenet_sd",
    "paper_imagenet_difference", "seeds", "values",
)  # fmt: skip


def markdown(table: State) -> str:
    seeds = table["seeds"]
    tested = f"`{table['test']}`" if table["test"] else "a fifth of them, their labels held out"
    over = f"mean ± standard deviation of {len(seeds)} seeds" if len(seeds) > 1 else "one seed"
    parts = [
        f"# {table['study']}: {table['line']}",
        f"{size_words(table)}, {table['pictures']:,} pictures of `{table['train']}`, tested on "
        f"{tested}; {over} ({', '.join(map(str, seeds))})." + paper_words(table),
        grid(["", *(c["title"] for c in table["columns"])], value_rows(table)),
    ]
    if differences := difference_rows(table):
        titles = [f"{c['name']}, {c['difference_unit'] or 'difference'}" for c in table["columns"]]
        interval = "with a 95 % t-interval over seeds, paired by seed"
        if len(seeds) == 1:
            interval = "of one seed, so without an interval"
        parts += [f"Difference to the base, {interval}:", grid(["", "base", *titles], differences)]
    parts += best_lines(table) + failure_lines(table)
    if aliases := alias_line(table):
        parts.append(aliases)
    parts += table["notes"]
    parts.append(f"Made by `{table['command']}` (wessl {table['versions']['wessl']}).")
    return "\n\n".join(parts) + "\n"


def size_words(table: State) -> str:
    changed = ", ".join(f"`{words}`" for words in table.get("otherwise", ()))
    return f"Size `{table['size']}`" + (f" with {changed}" if changed else "")


def paper_words(table: State) -> str:
    """On what the numbers in italics were measured, where there are any."""
    if not has_papers_numbers(table):
        return ""
    spread = table.get("paper_spread", "")
    means = f"; their ± is a {spread}" if spread else ""
    words = f"{table['paper']}{means}".replace("*", r"\*")  # of DINO*, which would end the italics
    return f" *In italics the paper's own numbers, of other data: {words}.*"


def has_papers_numbers(table: State) -> bool:
    results = [result for row in table["rows"] for result in row["results"].values()]
    return bool(table["best"]) or any(result["paper"] is not None for result in results)


def grid(titles: list[str], rows: list[list[str]]) -> str:
    bars = ["---", *["---:"] * (len(titles) - 1)]
    return "\n".join(f"| {' | '.join(words)} |" for words in [titles, bars, *rows])


def value_rows(table: State) -> list[list[str]]:
    return [[row["name"], *(value_cell(row, c) for c in table["columns"])] for row in table["rows"]]


def value_cell(row: State, column: State) -> str:
    result = row["results"][column["name"]]
    printed = result["paper"]
    beside = f" *({plus_minus(printed, 1 if column['unit'] == '%' else 2)})*" if printed else ""
    return own_number(row, column) + beside


def own_number(row: State, column: State) -> str:
    result = row["results"][column["name"]]
    if result["n"]:
        return plus_minus(result, column["digits"])
    failures = row["failures"].values()
    return "diverged" if any(f["diverged"] for f in failures) else "failed" if failures else "-"


def plus_minus(number: State, digits: int) -> str:
    spread = "" if number["sd"] is None else f" ± {number['sd']:.{digits}f}"
    return f"{number['mean']:.{digits}f}{spread}"


def difference_rows(table: State) -> list[list[str]]:
    return [
        [row["name"], row["base"], *(difference_cell(row, c) for c in table["columns"])]
        for row in table["rows"]
        if row["base"] is not None
    ]


def difference_cell(row: State, column: State) -> str:
    result = row["results"][column["name"]]
    printed = result["paper_difference"]
    beside = "" if printed is None else f" *({printed:+.1f})*"
    return own_difference(result["difference"], column["digits"]) + beside


def own_difference(difference: State | None, digits: int) -> str:
    if difference is None:
        return "-"
    words = f"{difference['mean']:+.{digits}f}"
    if difference["low"] is not None:
        words += f" [{difference['low']:+.{digits}f}, {difference['high']:+.{digits}f}]"
    return words


def best_lines(table: State) -> list[str]:
    lines = []
    for best in table["best"]:
        numbers = [
            f"{name} {plus_minus(n, 1)}" for name, n in best["paper"].items() if n is not None
        ]
        found = best["name"] or "none yet"
        lines.append(
            f"- {best['series']}: the best here by {best['chosen_by']} is {found}; "
            f"*the paper's best: {', '.join(numbers) or 'not measured'}*"
        )
    return ["\n".join(lines)] if lines else []


def failure_lines(table: State) -> list[str]:
    lines = [
        f"- {row['name']}, seed {seed}: {failure['error'].splitlines()[0]}"
        for row in table["rows"]
        for seed, failure in row["failures"].items()
    ]
    return ["Failed:\n\n" + "\n".join(lines)] if lines else []


def alias_line(table: State) -> str:
    if not has_papers_numbers(table):
        return ""
    other = [f"{c['name']} stands beside the paper's {c['in_paper']}" for c in table["columns"]
             if c["in_paper"] != c["name"]]  # fmt: skip
    return f"{'; '.join(other)}." if other else ""


def comma_separated(table: State) -> str:
    """One line a cell and column; seeds and their values in the same order."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADINGS)
    for row in table["rows"]:
        for column in table["columns"]:
            result = row["results"][column["name"]]
            difference = result["difference"] or {}
            printed = result["paper"] or {}
            writer.writerow(
                [table["study"], table["size"], row["name"], row["series"], row["x"], row["base"]]
                + [column["name"], column["unit"], result["mean"], result["sd"], result["n"]]
                + [difference.get(key) for key in ("mean", "low", "high")]
                + [column["difference_unit"], printed.get("mean"), printed.get("sd")]
                + [result["paper_difference"], ";".join(result["seeds"])]
                + [";".join(repr(value) for value in result["seeds"].values())]
            )
    return text.getvalue()
