"""The published tables and figures, from the raw numbers in ``docs/results/``.

    python -m docs.builder.results                     # fills every table and redraws every figure
    python -m docs.builder.results add STUDY NAME --data "WORDS" --machine "WORDS" [--command ...]
                                       [--join]        # to NAME's seeds and cells

``add`` takes over what ``wessl study`` wrote (``STUDY/table.json``), without the paths of the
machine that made it, or the runs of ``wessl demo`` (``runs/demo``). A page names what it shows, and
the lines in between are filled in::

    <!-- results: where-how-digits -->
    <!-- end -->

``where-how-digits`` shows what is gained, with the rest folded away. Tables that are no study's
(``OF_SEVERAL``) come from several of them or from ``benchmarks/records/``.
"""

import argparse
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from docs.builder import demo, floors, gains, pair, settings, speed
from docs.builder.join import joined
from docs.builder.study import block
from numpy.typing import NDArray

from wessl.study.figure import draw

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
PAGES = (
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("results", "ablations", "speed")),
)
MARKED = re.compile(r"(<!-- results: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
OF_SEVERAL = gains.TABLES | floors.TABLES | pair.TABLES | settings.TABLES | speed.TABLES
"""Tables that are no study's."""
State = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Publish results.")
    commands = parser.add_subparsers(dest="what")
    adding = commands.add_parser("add")
    adding.add_argument("study", type=Path)
    adding.add_argument("name")
    adding.add_argument("--data", required=True, help="the pictures, in words")
    adding.add_argument("--machine", required=True)
    adding.add_argument("--command", help="as a user would type it")
    adding.add_argument("--join", action="store_true", help="keep NAME's other seeds and cells")
    asked = parser.parse_args()
    if asked.what == "add":
        RESULTS.mkdir(exist_ok=True)
        path, table = RESULTS / f"{asked.name}.json", taken(asked)
        if asked.join:
            table = joined(json.loads(path.read_text()), table)
        path.write_text(json.dumps(table, indent=1) + "\n")
    for path in sorted(RESULTS.glob("*.json")):
        figure(json.loads(path.read_text()), path.with_suffix(".svg"))
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")


def taken(asked: argparse.Namespace) -> State:
    """Without the paths of the machine that made it."""
    if not (asked.study / "table.json").exists():
        return demo.take(asked.study, asked.data, asked.machine, asked.command)
    table: State = json.loads((asked.study / "table.json").read_text())
    for row in table["rows"]:
        row.pop("runs")
    words = dict(train=asked.data, test="their test set", machine=asked.machine)
    return table | words | dict(command=asked.command or table["command"])


def filled(text: str) -> str:
    """The page with every marked table as the raw numbers have it."""
    return MARKED.sub(lambda found: found[1] + shown(found[2]) + found[3], text)


def shown(name: str) -> str:
    if name in OF_SEVERAL:
        return OF_SEVERAL[name]()
    table = json.loads((RESULTS / f"{name}.json").read_text())
    if table["kind"] == "demo":
        return demo.table(table)
    return block(table)


def figure(table: State, path: Path) -> None:
    """Of a study; the demo's is on its report."""
    if table["kind"] == "demo":
        return
    with tempfile.TemporaryDirectory() as folder:
        draw(table, Path(folder))
        drawn = Path(folder) / "figure.svg"
        if drawn.exists() and not (path.exists() and same_drawing(drawn, path)):
            path.write_bytes(drawn.read_bytes())


def same_drawing(a: Path, b: Path) -> bool:
    """But for the last digit of a place, which matplotlib's layout leaves to addresses in memory,
    and for the names of shapes, which are made of their digits."""
    (words, numbers), (others, of_others) = map(words_and_numbers, (a, b))
    return words == others and np.allclose(numbers, of_others, rtol=0, atol=5e-6)


def words_and_numbers(path: Path) -> tuple[str, NDArray[np.float64]]:
    """Of a figure, its shapes named in the order in which they appear."""
    names: dict[str, str] = {}
    text = re.sub(
        r"\b[pm][0-9a-f]{10}\b",
        lambda found: names.setdefault(found[0], f"shape{len(names)}"),
        path.read_text(encoding="utf-8"),
    )
    number = r"-?\d+(?:\.\d+)?"
    return re.sub(number, "#", text), np.array(re.findall(number, text), float)


if __name__ == "__main__":
    main()
