"""The paper's numbers in the grids, against its tables as they stand in its source."""

import re

import pytest

from wessl.study import paper
from wessl.study.grids import prob_variants, where_how
from wessl.study.main_tables import methods, overhead, transfer
from wessl.study.sizes import SIZES
from wessl.study.studies import STUDIES

# Rows of the LaTeX tables, without their marks: few-shot 1, 2, 5, 1 %, k-NN, linear.
ABLATION = {
    "base": "40.6+-0.2 & 49.8+-0.2 & 57.9+-0.3 & 63.4+-0.2 & 72.3+-0.1 & 74.4+-0.1",
    "unif, both": "40.4+-0.4 & 49.5+-0.4 & 57.6+-0.3 & 63.3+-0.3 & 72.2+-0.2 & 74.5+-0.2",
    "prob, projection": "39.8+-0.5 & 49.0+-0.5 & 57.4+-0.4 & 63.0+-0.4 & 72.8+-0.2 & 74.8+-0.1",
    "prob, both": "41.9+-0.3 & 51.5+-0.5 & 59.6+-0.4 & 65.1+-0.3 & 73.7+-0.3 & 75.4+-0.1",
    "ent, codebook": "40.8+-0.4 & 49.5+-0.6 & 58.0+-0.4 & 63.5+-0.4 & 72.1+-0.3 & 74.5+-0.3",
    "ent, projection": "43.0+-0.6 & 52.2+-0.8 & 59.7+-0.7 & 64.8+-0.5 & 72.9+-0.6 & 75.1+-0.4",
    "ent, both": "44.0+-0.2 & 53.0+-0.5 & 60.5+-0.3 & 65.5+-0.1 & 73.2+-0.1 & 75.3+-0.1",
    "ent-st, both": "40.0+-0.5 & 39.2+-0.6 & 57.3+-0.5 & 62.7+-0.5 & 71.9+-0.4 & 74.0+-0.4",
}
PROB = {
    "base": "40.6+-0.2 & 49.8+-0.2 & 57.9+-0.3 & 63.4+-0.2 & 72.3+-0.1 & 74.4+-0.1",
    "prob": "41.9+-0.3 & 51.5+-0.5 & 59.6+-0.4 & 65.1+-0.3 & 73.7+-0.3 & 75.4+-0.1",
    "prob-te": "41.5+-0.2 & 50.4+-0.3 & 58.3+-0.3 & 63.7+-0.1 & 72.3+-0.2 & 74.6+-0.1",
    "prob-max": "- & - & - & - & - & -",
    "prob-max-te": "41.4+-0.2 & 50.3+-0.3 & 58.1+-0.3 & 63.6+-0.2 & 72.3+-0.2 & 74.5+-0.2",
}
METHODS = {
    "DINO, vits16": "39.1+-0.3 & 49.1+-0.5 & 58.6+-0.2 & 64.7 & 74.3 & 75.8 / 76.9",
    "DINO*, vits16": "44.6+-0.2 & 53.6+-0.3 & 61.1+-0.2 & 66.2 & 74.1 & 75.8 / 76.9",
    "MSN, vits16": "39.1+-0.3 & 49.2+-0.3 & 58.4+-0.1 & 64.3 & 72.8 & 74.7 / 75.5",
    "MSN*, vits16": "47.4+-0.1 & 56.3+-0.4 & 62.8+-0.2 & 67.1 & 73.3 & 75.6 / 76.6",
    "DINO*-prob ({m}), vits16": "45.2+-0.4 & 54.9+-0.4 & 62.5+-0.2 & 67.3 & 75.1 & 76.5 / 77.6",
    "DINO*-ent ({m}), few, vits16": "46.3+-0.1 & 55.5+-0.6 & 63.0+-0.3 & 67.5 & 74.8 & 76.2 / 77.2",
    "DINO*-ent ({m}), vits16": "47.6+-0.1 & 56.8+-0.5 & 64.0+-0.2 & 68.3 & 75.3 & 76.8 / 77.7",
    "MSN*-ent ({m}), few, vits16": "48.8+-0.2 & 57.5+-0.5 & 64.0+-0.2 & 67.9 & 74.6 & 76.0 / 76.9",
    "MSN*-ent ({m}), vits16": "50.1+-0.1 & 58.9+-0.6 & 65.1+-0.3 & 68.7 & 75.2 & 76.4 / 77.4",
    "DINO, vitb16": "43.0+-0.2 & 52.7+-0.5 & 61.8+-0.2 & 67.4 & 76.1 & 78.2",
    "DINO*, vitb16": "49.3+-0.1 & 58.1+-0.5 & 65.0+-0.3 & 69.1 & 76.0 & 78.5",
    "MSN, vitb16": "49.8+-0.2 & 58.9+-0.4 & 65.5+-0.3 & - & - & -",
    "MSN*, vitb16": "50.7+-0.1 & 59.2+-0.4 & 65.9+-0.2 & 69.7 & 74.7 & 78.1",
    "DINO*-ent ({m}), vitb16": "52.8+-0.1 & 61.5+-0.4 & 67.6+-0.3 & 71.1 & 77.1 & 79.1",
    "MSN*-ent ({m}), vitb16": "53.7+-0.2 & 62.4+-0.6 & 68.3+-0.2 & 71.5 & 77.2 & 78.9",
    "DINO, vitb8": "47.5+-0.2 & 57.3+-0.5 & 65.4+-0.3 & 70.3 & 77.4 & 80.1",
    "DINO*, vitb8": "49.5+-0.5 & 58.6+-0.6 & 65.9+-0.3 & 70.7 & 77.1 & 80.2",
    "MSN, vitb8": "55.1+-0.1 & 64.9+-0.7 & 71.6+-0.3 & - & - & -",
    "MSN*, vitb8": "51.9+-0.3 & 61.1+-0.4 & 67.7+-0.3 & 71.7 & 75.7 & 80.3",
    "DINO*-ent ({m}), vitb8": "55.0+-0.4 & 63.4+-0.6 & 69.5+-0.3 & 73.4 & 78.6 & 81.0",
    "MSN*-ent ({m}), vitb8": "55.6+-0.2 & 64.5+-0.5 & 70.3+-0.2 & 73.4 & 78.9 & 80.8",
}
COLLAPSE = {
    "centring": "37.8+-0.4 & 47.4+-0.3 & 56.9+-0.4 & 63.0 & 72.4 & 74.9",
    "Sinkhorn": "39.1+-0.3 & 49.4+-0.3 & 58.7+-0.2 & 64.8 & 74.1 & 76.0",
    "Sinkhorn and ME-MAX": "36.0+-0.4 & 46.6+-0.6 & 56.5+-0.2 & 63.2 & 73.2 & 75.2",
    "ME-MAX": "43.9+-0.2 & 53.0+-0.3 & 61.1+-0.2 & 66.0 & 74.0 & 75.8",
}
MEMAX = {
    "weight 1": "37.6+-0.2 & 48.0+-0.4 & 57.7+-0.2 & 64.0 & 73.5 & 75.6",
    "weight 3": "43.9+-0.2 & 53.0+-0.3 & 61.1+-0.2 & 66.0 & 74.0 & 75.8",
    "weight 5": "43.6+-0.2 & 52.6+-0.4 & 60.4+-0.1 & 65.5 & 73.9 & 75.6",
}
TRANSFER = {
    "DINO*": "78.4 & 93.8 & 81.0 & 66.1 & 66.7 & 74.6 & 92.0 & 94.9 & 94.4 & 82.43",
    "DINO*-ent ({m})": "79.1 & 93.8 & 81.4 & 66.5 & 66.8 & 74.9 & 92.8 & 94.6 & 93.9 & 82.64",
    "MSN*": "77.7 & 93.1 & 79.8 & 64.6 & 63.3 & 72.2 & 92.4 & 94.7 & 92.7 & 81.17",
    "MSN*-ent ({m})": "78.4 & 93.9 & 81.1 & 65.2 & 68.0 & 73.2 & 93.1 & 95.4 & 92.8 & 82.34",
}
SETS = [
    "food101", "cifar10", "cifar100", "sun397", "cars", "dtd", "pets", "caltech101", "flowers102",
    "mean",
]  # fmt: skip
PROTOCOLS = ["1-shot", "2-shot", "5-shot", "1%", "k-NN", "linear"]


def read(latex, names=PROTOCOLS):
    """A table's row; of two linear numbers the left, that of the last layer."""
    found = {}
    for name, cell in zip(names, latex.split("&"), strict=True):
        numbers = [float(n) for n in re.findall(r"\d+\.\d+", cell.split("/")[0])]
        if numbers:
            found[name] = (numbers[0], numbers[1] if "+-" in cell else None)
    return found


def printed(cells):
    protocols = {*PROTOCOLS, *SETS}
    return {c.name: {k: v for k, v in c.paper.items() if k in protocols} for c in cells}


@pytest.mark.parametrize(
    ("cells", "table", "also"),
    [
        (where_how, ABLATION, {"prob, codebook": {}}),
        (prob_variants, PROB, {}),
        (
            methods,
            METHODS,
            {
                "DINO, Sinkhorn, fewer codes, vits16": read(COLLAPSE["Sinkhorn"]),
                "MSN* with Sinkhorn, weight 1, vits16": {},
            },
        ),
        (STUDIES["memax"].cells, MEMAX, {}),
    ],
)
def test_cells_carry_the_papers_numbers(cells, table, also):
    assert printed(cells(SIZES["paper"])) == {name: read(row) for name, row in table.items()} | also


def test_the_last_four_layers_are_kept_apart_from_the_last():
    four = {
        name: float(re.findall(r"\d+\.\d+", row.split("/")[1])[0])
        for name, row in METHODS.items()
        if "/" in row
    }
    cells = {c.name: c.paper for c in methods(SIZES["paper"])}
    assert {name: cells[name]["linear, 4 layers"][0] for name in four} == four


def test_the_best_of_each_anti_collapse_technique():
    found = STUDIES["collapse"].best_of
    assert {name: dict(row) for name, row in found.items()} == {
        name: read(row) for name, row in COLLAPSE.items()
    }
    series = {cell.series for cell in STUDIES["collapse"].cells(SIZES["small"])}
    assert series == set(COLLAPSE)


def test_transfer_and_its_mean():
    assert printed(transfer(SIZES["small"])) == {n: read(r, SETS) for n, r in TRANSFER.items()}


def test_overhead_as_the_paper_measured_it_on_b16():
    table = {1: (5.81, 5.25), 4: (5.91, 5.40), 16: (6.34, 5.89)}
    for cell in overhead(SIZES["paper"]):
        hours, gigabytes = table[cell.x]
        expected = {"time": (hours, None), "memory": (gigabytes, None)}
        assert cell.paper == (expected if cell.series == "B/16" else {})


@pytest.mark.parametrize("size", SIZES.values(), ids=lambda size: size.name)
def test_points_of_figures_carry_only_numbers_the_text_has(size):
    """One head and sixteen (DINO*), one, two and eight (MSN*), and the best gamma of each."""
    known = {c.name: c.paper["1-shot"][0] for n in ("heads", "gamma", "teacher-temperature")
             for c in STUDIES[n].cells(size) if c.paper}  # fmt: skip
    expected = {
        "DINO*, m = 1": 40.6,
        "DINO*, m = 16": 44.0,
        "MSN*, m = 1": 47.4,
        "MSN*, m = 2": 48.8,
        "MSN*, m = 8": 50.1,
        "DINO*, 1 head": 40.6,
        "DINO*, gamma = 0.05 ln c": 44.0,
        "MSN*, 1 head": 47.4,
        "MSN*, gamma = 0.01 ln c": 50.1,
        "1 head, τ = 0.025": 40.6,
        "ent": 44.0,
    }
    assert known.items() <= expected.items()
    if size.name != "smoke":
        assert known == expected


def test_a_row_reads_means_deviations_and_gaps():
    assert paper.row("1.5±0.5 - 2") == {"1-shot": (1.5, 0.5), "5-shot": (2.0, None)}
