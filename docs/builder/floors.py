"""What raw pixels and an encoder that learnt nothing have on each set, below the trained ones."""

import json
from pathlib import Path
from typing import Any

from wessl.study.text import grid

RECORD = Path(__file__).parents[2] / "benchmarks" / "records" / "floors.json"


def table() -> str:
    record: dict[str, Any] = json.loads(RECORD.read_text())
    columns = record["columns"]
    lines = [
        [f"{name}: {who}", *(f"{100 * results[column]:.1f}" for column in columns)]
        for name, rows in record["sets"].items()
        for who, results in rows.items()
    ]
    return grid(["", *columns], lines) + "\n"


TABLES = {"floors": table}
