"""What a study says: the list of studies, what it will cost, how far it is, and its table."""

import sys
from typing import Any

from wessl.study.cell import Size, Study
from wessl.study.text import own_difference, own_number, plus_minus

State = dict[str, Any]


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def print_list(studies: dict[str, Study], sizes: dict[str, Size]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Studies, and the runs of one seed", box=None, title_justify="left")
    table.add_column("name", no_wrap=True)
    table.add_column("what it asks")
    for name in sizes:
        table.add_column(name, justify="right", no_wrap=True)
    for study in studies.values():
        counts = (str(len(study.cells(size))) for size in sizes.values())
        table.add_row(study.name, study.line, *counts)
    console = Console(highlight=False)
    console.print(table)
    for size in sizes.values():
        console.print(f"--size {size.name}: {size.line}")


def print_table(found: State) -> None:
    """Means with the paper's ImageNet numbers; then differences to the base."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    seeds = len(found["seeds"])
    over = f"{seeds} seeds" if seeds > 1 else "1 seed, so without spread or intervals"
    table = Table(title=escape(f"{found['study']}, {found['size']}: {over}"))
    table.add_column("")
    for column in found["columns"]:
        table.add_column(escape(column["title"]), justify="right")
    for row in found["rows"]:
        cells = []
        for column in found["columns"]:
            result = row["results"][column["name"]]
            lines = [escape(own_number(row, column))]
            sign = " %" if column["relative"] else ""
            if result["difference"] is not None:
                lines.append(own_difference(result["difference"], column["digits"]) + sign)
            if result["paper"] is not None:
                shift = result["paper_difference"]
                words = "" if shift is None else f" ({shift:+.1f}{sign})"
                printed = plus_minus(result["paper"] | dict(sd=None), column["digits"])
                lines.append(f"[dim italic]paper {printed}{words}[/]")
            cells.append("\n".join(lines))
        table.add_row(escape(row["name"]), *cells, end_section=True)
    console = Console(highlight=False)
    console.print(table)
    console.print(legend(found), soft_wrap=True)


def legend(found: State) -> str:
    """What each line of a cell is, of those that are there."""
    results = [result for row in found["rows"] for result in row["results"].values()]
    spread = any(result["sd"] is not None for result in results)
    gains = [result["difference"] for result in results if result["difference"] is not None]
    words = ["Mean ± standard deviation over the seeds" if spread else "Each number is of one seed"]
    if gains:
        sure = any(gain["low"] is not None for gain in gains)
        words.append(f"below, the difference to the base{' with its paired 95 % interval' * sure}")
    if any(result["paper"] is not None for result in results):
        words.append(f"[italic]after the word paper its own, of other data: {found['paper']}[/]")
    return "; ".join(words) + "."
