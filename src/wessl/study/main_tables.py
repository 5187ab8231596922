"""Cells of the main table, of transfer, and of what is measured besides accuracy."""

from typing import Any

from wessl.recipes import SIZES as ARCHITECTURES
from wessl.study import paper
from wessl.study.cell import Cell, Share, Size
from wessl.study.grids import ONE, WIDE, ensemble

FEW = {"heads.count": Share(1 / 4)}
BOTH = ONE | {"loss.target": "sinkhorn", "loss.me_max": 1.0}
# Name here and in the paper, recipe, what differs from it. The second row of each method is a step
# from the original to the starred one.
ROWS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("DINO", "DINO", "dino", {}),
    ("DINO, Sinkhorn, fewer codes", "", "dino-star", WIDE),
    ("DINO*", "DINO*", "dino-star", ONE),
    ("DINO*-prob ({m})", "DINO*-prob (16)", "dino-star-ent", {"loss.weighting": "prob"}),
    ("DINO*-ent ({m}), few", "DINO*-ent (4)", "dino-star-ent", FEW),
    ("DINO*-ent ({m})", "DINO*-ent (16)", "dino-star-ent", {}),
    ("MSN", "MSN", "msn", {}),
    ("MSN* with Sinkhorn, weight 1", "", "msn-star", BOTH),
    ("MSN*", "MSN*", "msn-star", ONE),
    ("MSN*-ent ({m}), few", "MSN*-ent (2)", "msn-star-ent", FEW),
    ("MSN*-ent ({m})", "MSN*-ent (8)", "msn-star-ent", {}),
)


def methods(size: Size) -> list[Cell]:
    """All rows for S/16; at size ``paper`` also those the paper has for B/16 and B/8."""
    cells = []
    for architecture in ARCHITECTURES if size.name == "paper" else ARCHITECTURES[:1]:
        known = paper.METHODS[architecture]
        end = f", {architecture}" if size.name == "paper" else ""
        for name, printed, recipe, changes in ROWS:
            if architecture != "vits16" and printed not in known:
                continue
            # The step's set-up is the one in which the anti-collapse techniques were compared.
            numbers = paper.COLLAPSE["Sinkhorn"] if changes is WIDE else known.get(printed, {})
            star = "DINO*" if name.startswith("DINO") else "MSN*"
            first = None if name == star else star + end
            cells.append(
                Cell(
                    name + end,
                    recipe,
                    changes,
                    first,
                    series=star,
                    paper=numbers,
                    architecture=architecture,
                )
            )
    return cells


def transfer(size: Size) -> list[Cell]:
    rows = [row for row in ROWS if row[1] in paper.TRANSFER]
    return [
        Cell(
            name,
            recipe,
            changes,
            None if name in ("DINO*", "MSN*") else name[: name.index("*") + 1],
            paper=paper.TRANSFER[printed],
        )
        for name, printed, recipe, changes in rows
    ]


def diversity(size: Size) -> list[Cell]:
    """Four heads, as in the paper's figures; accuracies were printed for sixteen only."""
    return [
        ensemble(name, name, base=None if name == "unif" else "unif", paper={})
        for name in ("unif", "prob", "ent")
    ]


def overhead(size: Size) -> list[Cell]:
    """One step of m = 1, 4, 16: of the recipe as published, or at ``smoke`` of a small one."""
    cells = []
    kinds: tuple[Any, ...] = ("vits16",) if size.name == "smoke" else ("vits16", "vitb16")
    for architecture in kinds:
        series = {"vits16": "S/16", "vitb16": "B/16"}[architecture]
        for m in (1, 4, 16):
            name = f"{series}, m = {m}" if size.name != "smoke" else f"m = {m}"
            cells.append(
                Cell(
                    name,
                    "dino-star-ent",
                    {"heads.count": m},
                    None if m == 1 else name.replace(f"m = {m}", "m = 1"),
                    series if size.name != "smoke" else "small",
                    m,
                    paper.OVERHEAD[m] if architecture == "vitb16" else {},
                    architecture=architecture,
                    published=size.name != "smoke",
                )
            )
    return cells
