"""A study's table on a page: gains first; accuracies, and how they were made, folded away."""

from typing import Any

from wessl.study.text import (
    alias_line,
    best_lines,
    difference_cell,
    failure_lines,
    grid,
    paper_words,
    size_words,
    value_rows,
)

State = dict[str, Any]


def block(table: State) -> str:
    seeds, columns = table["seeds"], table["columns"]
    over = f"{len(seeds)} seeds" if len(seeds) > 1 else "one seed"
    bases = {row["base"] for row in table["rows"] if row["base"] is not None}
    beside = f"`{bases.pop()}`" if len(bases) == 1 else "the base"
    interval = ", with a 95 % t-interval over seeds, paired by seed" * (len(seeds) > 1)
    lead = f"{size_words(table)}; {table['pictures']:,} pictures of {table['train']}; {over}"
    gains = [
        [row["name"], *(difference_cell(row, column) for column in columns)]
        for row in table["rows"]
        if row["base"] is not None
    ]
    titles = [column["name"] for column in columns]
    return "\n\n".join(
        [
            f"{lead}.{paper_words(table)} Points over {beside}{interval}:",
            grid(["", *titles], gains),
            *best_lines(table),
            folded("Accuracies, and how they were made", made(table)),
        ]
    )


def made(table: State) -> list[str]:
    spread = "Mean ± standard deviation over seeds" if len(table["seeds"]) > 1 else "One seed"
    titles = [column["title"] for column in table["columns"]]
    return [
        f"{spread} {', '.join(map(str, table['seeds']))}:",
        grid(["", *titles], value_rows(table)),
        *failure_lines(table),
        " ".join(words for words in (alias_line(table), *table["notes"]) if words),
        f"Made by `{table['command']}` (wessl {table['versions']['wessl']}). "
        f"On {table['machine']}.",
    ]


def folded(summary: str, parts: list[str]) -> str:
    inside = "\n\n".join(part for part in parts if part)
    return f"<details>\n<summary>{summary}</summary>\n\n{inside}\n\n</details>\n"
