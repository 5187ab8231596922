"""Tables from the record of ``benchmarks/speed.py``: its newest run, what more heads cost in all;
and from those of ``wessl bench`` on a CPU."""

import json
import statistics
from pathlib import Path
from typing import Any

from wessl.bench.turns import times_as_fast
from wessl.study.paper import OVERHEAD
from wessl.study.text import grid

State = dict[str, Any]
RECORDS = Path(__file__).parents[2] / "benchmarks" / "records"
RECORD = RECORDS / "speed-h200.json"
ON_A_CPU = {
    zen: RECORDS / f"bench-{zen.lower().replace(' ', '')}.json" for zen in ("Zen 4", "Zen 5")
}
SHOWN = ("m = 1", "m = 16")
OTHERS = ("timm's", "16 heads, a loop")
COUNTS = {"one head": 1, "4 heads": 4, "16 heads": 16}
PAPERS_GROUP = "ViT-B/16"


def runs() -> list[State]:
    """But for those of code that is gone."""
    found: list[State] = json.loads(RECORD.read_text())["runs"]
    return [run for run in found if "code" not in run]


def steps() -> str:
    """Of the newest run."""
    (run,) = (run for run in runs() if run.get("newest"))
    groups: dict[str, list[State]] = {}
    for row in run["rows"]:
        groups.setdefault(row["group"], []).append(row)
    lines = []
    for group, rows in groups.items():
        lines.append([f"**{group}**", *[""] * 6])
        lines += [step(row) for row in rows]
    titles = ["", "ms", "least to most", "with views", "img/s", "share of the rate", "GiB"]
    return grid(titles, lines) + "\n"


def step(row: State) -> list[str]:
    name = row["name"].replace("*", r"\*")
    name = name if name.startswith(OTHERS) else f"wessl, {name}"
    between = f"{min(row['rounds']):.1f}\N{EN DASH}{max(row['rounds']):.1f}"
    views = "" if row["with_views"] is None else f"{row['with_views']:.1f}"
    share = "" if row["share"] is None else f"{row['share']:.0%}"
    middle, images = f"{row['milliseconds']:.1f}", f"{row['images']:,.0f}"
    return [name, middle, between, views, images, share, f"{row['gib']:.1f}"]


def overhead() -> str:
    """More heads beside one head of the same run."""
    lines = []
    for run in sorted(runs(), key=lambda run: not run.get("newest", False)):
        groups: dict[str, dict[int, State]] = {}
        for row in run["rows"]:
            if row["name"] in COUNTS:
                groups.setdefault(row["group"], {})[COUNTS[row["name"]]] = row
        for group, rows in groups.items():
            for m in sorted(rows.keys() - {1}) if 1 in rows else []:
                where = f"{group}, {run['name']}" if "name" in run else group
                lines.append(cost(where, m, rows[1], rows[m]))
    titles = ["", "one head: ms, GiB", "m heads: ms, GiB", "more time", "more memory"]
    lines.sort(key=lambda line: line[0].startswith(PAPERS_GROUP))  # last, beside the paper's
    return grid(titles, lines) + "\n"


def cost(group: str, m: int, one: State, more: State) -> list[str]:
    time, memory = (more[what] / one[what] - 1 for what in ("milliseconds", "gib"))
    told = [f"{time:+.1%}", f"{memory:+.1%}"]
    if group.startswith(PAPERS_GROUP):
        papers = [OVERHEAD[m][what][0] / OVERHEAD[1][what][0] - 1 for what in ("time", "memory")]
        told = [f"{ours} *({of:+.1%})*" for ours, of in zip(told, papers, strict=True)]
    both = [f"{row['milliseconds']:.1f}, {row['gib']:.1f}" for row in (one, more)]
    return [f"{group}, m = {m}", *both, *told]


def on_a_cpu() -> str:
    """Both ways in each precision, and ours in bf16 beside the plain step in fp32."""
    lines = []
    for cpu, path in ON_A_CPU.items():
        lines.append([f"**{cpu}**", *[""] * 5])
        found: dict[str, dict[str, list[float]]] = {}
        for row in json.loads(path.read_text())["rows"]:
            if row["section"] == "step" and row["subject"].endswith(SHOWN):
                precision = "bf16" if ", bf16," in row["subject"] else "fp32"
                subject = row["subject"].replace(f", {precision}", "")
                who = "ours" if row["way"] == "wessl" else "plain"
                found.setdefault(subject, {})[f"{precision} {who}"] = row["rounds"]
        for subject, rounds in found.items():
            told = [
                cell
                for precision in ("fp32", "bf16")
                for cell in beside(rounds[f"{precision} ours"], rounds[f"{precision} plain"])
            ]
            across = beside(rounds["bf16 ours"], rounds["fp32 plain"])[1]
            lines.append([subject, *told, across])
    titles = ["", "fp32, ms", "ratio", "bf16, ms", "ratio", "ours in bf16, plain in fp32"]
    return grid(titles, lines) + "\n"


def heads_on_a_cpu() -> str:
    """Sixteen heads over one, both ours."""
    lines = []
    for cpu, path in ON_A_CPU.items():
        lines.append([f"**{cpu}**", *[""] * 4])
        rows = {
            row["subject"]: row
            for row in json.loads(path.read_text())["rows"]
            if (row["section"], row["way"]) == ("step", "wessl")
        }
        of_one = [s.removesuffix("m = 1") for s in rows if s.endswith("m = 1")]
        for subject in (s for s in of_one if ", fp32," in s):
            told = []
            for precision in ("fp32", "bf16"):
                name = subject.replace("fp32", precision)
                one, many = (rows[f"{name}m = {m}"] for m in (1, 16))
                time = times_as_fast(one["rounds"], many["rounds"])
                mib = [row["facts"]["bytes"] / 2**20 for row in (one, many)]
                told += [f"{time - 1:+.0%}", f"{mib[0]:,.0f} to {mib[1]:,.0f}"]
            lines.append([subject.replace(", fp32", "").removesuffix(", "), *told])
    titles = ["", "fp32: time", "memory, MiB", "bf16: time", "memory, MiB"]
    return grid(titles, lines) + "\n"


def beside(ours: list[float], plain: list[float]) -> list[str]:
    """Medians in milliseconds, and the ratio's over rounds, with the least and the most of it."""
    ratios = [b / a for a, b in zip(ours, plain, strict=True)]
    between = f"{min(ratios):.2f}\N{EN DASH}{max(ratios):.2f}"
    both = (f"{1e3 * statistics.median(times):,.0f}" for times in (plain, ours))
    return [" / ".join(both), f"{times_as_fast(ours, plain):.2f} ({between})"]


def share_of_views(path: Path = ON_A_CPU["Zen 4"]) -> str:
    """Time of the views over that of a step with one head."""
    rows = json.loads(path.read_text())["rows"]
    lines = []
    for views in (row for row in rows if row["section"] == "views"):
        name = views["subject"].split(", batch")[0]
        steps = {
            row["subject"].removeprefix(f"{name}, ").split(",")[0]: row["seconds"]
            for row in rows
            if row["section"] == "step"
            and row["subject"].startswith(name)
            and row["subject"].endswith("m = 1")
            and row["way"] == "wessl"
        }
        shares = [f"{views['seconds'] / steps[p]:.0%}" for p in ("fp32", "bf16")]
        lines.append([name, f"{1e3 * views['seconds']:.1f}", *shares])
    return grid(["", "views, ms", "of a step in fp32", "in bf16"], lines) + "\n"


TABLES = {
    "speed": steps,
    "speed-cpu": on_a_cpu,
    "speed-cpu-views": share_of_views,
    "speed-cpu-heads": heads_on_a_cpu,
    "overhead": overhead,
}
