"""Which cells the paper's ablations have, and ours.

Ensembles start from ``dino-star-ent`` or ``msn-star-ent`` and one head from ``dino-star`` or
``msn-star`` everywhere, so that equal cells of two studies are equal configs and share their runs.
"""

from typing import Any

from wessl.config import WEIGHTINGS
from wessl.study import paper
from wessl.study.cell import AtLeast, Cell, Share, Size

ONE = {"heads.count": 1}
HIDDEN = AtLeast(2)
"""Layers of a head that has a width: a linear one, as for drawings, has none."""
WIDE = ONE | {"heads.depth": HIDDEN, "heads.hidden_dim": 2048}
"""The head of original DINO and MSN, in which the anti-collapse techniques were compared."""


def teacher_at(temperature: float) -> dict[str, float]:
    """The paper's fall from 0.05, whatever the automatic recipe takes for these pictures."""
    return {"loss.teacher_temperature": temperature, "loss.teacher_temperature_start": 0.05}


def ensemble(name: str, weighting: str = "ent", **more: Any) -> Cell:
    """A DINO* ensemble; ``more`` are fields of the cell, its changes added to the weighting."""
    changes = {"loss.weighting": weighting} | more.pop("changes", {})
    printed = paper.ABLATION.get(name.removesuffix(", both"), {})
    known: dict[str, Any] = dict(base="base", epochs=300, paper=printed)
    return Cell(name, "dino-star-ent", changes, **known | more)


def base(**more: Any) -> Cell:
    known: dict[str, Any] = dict(epochs=300, paper=paper.ABLATION["base"])
    return Cell("base", "dino-star", ONE, **known | more)


def where_how(size: Size) -> list[Cell]:
    projection, codebook = {"heads.share": "codebook"}, {"heads.share": "projection"}
    return [
        base(),
        ensemble("unif, both", "unif"),
        ensemble("prob, projection", "prob", changes=projection),
        ensemble("prob, codebook", "prob", changes=codebook),
        ensemble("prob, both", "prob"),
        ensemble("ent-st, both", "ent-st"),
        ensemble("ent, codebook", changes=codebook),
        ensemble("ent, projection", changes=projection),
        ensemble("ent, both"),
    ]


def prob_variants(size: Size) -> list[Cell]:
    names = ("prob", "prob-te", "prob-max", "prob-max-te")
    return [base(), *(ensemble(name, name) for name in names)]


def weightings(size: Size) -> list[Cell]:
    return [base(), *(ensemble(name, name) for name in WEIGHTINGS)]


def codes(size: Size) -> list[Cell]:
    counts: tuple[Any, Any] = (1024, 4096) if size.name == "paper" else (Share(1 / 4), Share(1))
    few, many = ({"heads.codes": count} for count in counts)
    first, known = "1 head, {c} codes (many)", paper.ABLATION
    return [
        Cell("1 head, {c} codes (few)", "dino-star", ONE | few, first, epochs=300),
        Cell(first, "dino-star", ONE | many, epochs=300, paper=known["base"]),
        ensemble("{m} heads, {c} codes (few)", changes=few, base=first, paper=known["ent"]),
        ensemble("{m} heads, {c} codes (many)", changes=many, base=first),
    ]


def heads(size: Size) -> list[Cell]:
    """One head is the base of each method; the paper's numbers for MSN* are its main table's."""
    dino_paper = {1: paper.ABLATION["base"], 16: paper.ABLATION["ent"]}
    known = paper.METHODS["vits16"]
    msn_paper = {1: known["MSN*"], 2: known["MSN*-ent (2)"], 8: known["MSN*-ent (8)"]}
    cells = []
    for star, counts, of_paper, epochs in (
        ("DINO*", size.heads, dino_paper, 300),
        ("MSN*", size.msn_heads, msn_paper, 800),
    ):
        for m in counts:
            recipe = f"{star[:-1].lower()}-star" + ("-ent" if m > 1 else "")
            first = None if m == 1 else f"{star}, m = 1"
            cells.append(
                Cell(f"{star}, m = {m}", recipe, {"heads.count": m}, first, star, m,
                     of_paper.get(m, {}), epochs)
            )  # fmt: skip
    return cells


def gamma(size: Size) -> list[Cell]:
    known = paper.METHODS["vits16"]
    cells = []
    for star, gammas, one, best, at, epochs in (
        ("DINO*", size.gammas, paper.ABLATION["base"], paper.ABLATION["ent"], 0.05, 300),
        ("MSN*", size.msn_gammas, known["MSN*"], known["MSN*-ent (8)"], 0.01, 800),
    ):
        recipe, first = f"{star[:-1].lower()}-star", f"{star}, 1 head"
        cells.append(Cell(first, recipe, ONE, series=star, paper=one, epochs=epochs))
        for value in gammas:
            numbers = best if value == at else {}
            name, changes = f"{star}, gamma = {value:g} ln c", {"loss.gamma": value}
            cells.append(Cell(name, f"{recipe}-ent", changes, first, star, value, numbers, epochs))
    return cells


def projection(size: Size) -> list[Cell]:
    """Depth and width of one head, then more heads of the usual kind."""
    first, cells = "base", [base(series="more heads", x="parameters")]
    for depth in size.depths:
        layers = f"{depth} layer{'s' * (depth > 1)}"
        for width in size.widths:
            changes = ONE | {"heads.depth": depth, "heads.hidden_dim": width}
            numbers = paper.ABLATION["base"] if (depth, width) == (3, 1024) else {}
            cells.append(
                Cell(f"{layers} of {width}", "dino-star", changes, first,
                     f"1 head, {layers}", "parameters", numbers, 300)
            )  # fmt: skip
    for m in size.heads[1:]:
        numbers = paper.ABLATION["ent"] if m == 16 else {}
        cells.append(
            Cell(f"{m} heads, ent", "dino-star-ent", {"heads.count": m}, first, "more heads",
                 "parameters", numbers, 300)
        )  # fmt: skip
    return cells


def teacher_temperature(size: Size) -> list[Cell]:
    first = "1 head, τ = 0.025"
    cells = [ensemble("ent", base=first, changes=teacher_at(0.025))]
    for value in (0.005, 0.01, 0.025, 0.05):
        changes = ONE | teacher_at(value)
        numbers = paper.ABLATION["base"] if value == 0.025 else {}
        cells.append(
            Cell(f"1 head, τ = {value:g}", "dino-star", changes, first, "1 head", value, numbers,
                 300)
        )  # fmt: skip
    return cells


TECHNIQUES: dict[str, dict[str, Any]] = {
    "centring": {"loss.target": "centering"},
    "Sinkhorn": {"loss.target": "sinkhorn"},
    "Sinkhorn and ME-MAX": {"loss.target": "sinkhorn", "loss.me_max": 1.0},
    "ME-MAX": {"loss.target": "none", "loss.me_max": 3.0},
}


def collapse(size: Size) -> list[Cell]:
    cells = []
    for technique, changes in TECHNIQUES.items():
        for value in size.temperatures:
            both = WIDE | changes | teacher_at(value)
            cells.append(
                Cell(f"{technique}, τ = {value:g}", "dino-star", both, "Sinkhorn, τ = 0.025",
                     technique, value, epochs=800)
            )  # fmt: skip
    return cells


def memax(size: Size) -> list[Cell]:
    technique = WIDE | TECHNIQUES["ME-MAX"] | teacher_at(0.025)
    return [
        Cell(f"weight {weight:g}", "dino-star", technique | {"loss.me_max": weight}, "weight 3",
             "ME-MAX", weight, numbers, 800)
        for weight, numbers in paper.MEMAX.items()
    ]  # fmt: skip
