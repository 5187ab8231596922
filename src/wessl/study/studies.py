"""The named studies."""

import difflib
from collections.abc import Mapping
from typing import Any

from wessl.errors import UserError
from wessl.study import grids, main_tables, paper
from wessl.study.cell import Axis, Study

SHORT = "ViT-S/16 on ImageNet-1k, 300 epochs"
LONG = "ViT-S/16 on ImageNet-1k, 800 epochs"
MIXED = "ViT-S/16 on ImageNet-1k; DINO* 300 epochs, MSN* 800"
SEEDS = "standard deviation over seeds"
DRAWS = "standard deviation over 3 draws of the labels"
BOTH = f"{SEEDS} for DINO*, over 3 draws of the labels for MSN*"

_ALL = (
    Study(
        "where-how",
        "which part of the head to ensemble, and how to weigh the heads",
        grids.where_how,
        f"{SHORT}, 16 heads, 3 seeds",
        SEEDS,
        notes=(
            "`projection` is many projections over one codebook (`heads.share codebook`), "
            "`codebook` many codebooks over one projection (`heads.share projection`).",
            "`prob, codebook` is not in the paper.",
            "The paper's 2-shot number of `ent-st`, 39.2, lies below its 1-shot number: probably a "
            "misprint.",
        ),
    ),
    Study(
        "prob-variants",
        "prob by student or teacher, soft or hard",
        grids.prob_variants,
        f"{SHORT}, 16 heads, 3 seeds",
        SEEDS,
        notes=("`prob-max` diverged for the authors.",),
    ),
    Study(
        "weightings",
        "all ten weightings of the family, three of which the authors did not run",
        grids.weightings,
        f"{SHORT}, 16 heads, 3 seeds",
        SEEDS,
        notes=(
            "`prob-max` diverged for the authors, who have no numbers of `unif-all`, `kl` and "
            "`var`.",
        ),
    ),
    Study(
        "heads",
        "how many heads, for DINO* and MSN*",
        grids.heads,
        MIXED,
        BOTH,
        Axis("heads m"),
        notes=("Most of the paper's numbers exist only as a figure.",),
    ),
    Study(
        "gamma",
        "the temperature of entropy weights, for DINO* and MSN*",
        grids.gamma,
        MIXED,
        BOTH,
        Axis("gamma in units of ln c"),
        notes=(
            "Most of the paper's numbers exist only as a figure; for MSN*, gamma's values too.",
        ),
    ),
    Study(
        "projection",
        "deeper and wider single heads against more heads, by parameters",
        grids.projection,
        SHORT,
        SEEDS,
        Axis("parameters of the heads"),
        notes=(
            "Codebooks count as parameters. Most of the paper's numbers exist only as a figure.",
        ),
    ),
    Study(
        "teacher-temperature",
        "is it only a sharper teacher? one head at four temperatures, ent beside it",
        grids.teacher_temperature,
        SHORT,
        SEEDS,
        Axis("teacher temperature τ"),
        notes=("Most of the paper's numbers exist only as a figure.",),
    ),
    Study(
        "codes",
        "few codes or many, with one head and with all",
        grids.codes,
        SHORT,
        SEEDS,
        notes=("The paper names the best of each, 4096 codes for one head and 1024 for sixteen.",),
    ),
    Study(
        "collapse",
        "what keeps the codes in use: centring, Sinkhorn, ME-MAX, at three teacher temperatures",
        grids.collapse,
        "ViT-S/16 on ImageNet-1k; the paper does not say for how long, its level is that of 800 "
        "epochs",
        DRAWS,
        Axis("teacher temperature τ"),
        best_of=paper.COLLAPSE,
        notes=("The paper gives the best of three temperatures, not which one it was.",),
    ),
    Study(
        "memax",
        "the weight of mean-entropy maximisation",
        grids.memax,
        "ViT-S/16 on ImageNet-1k; the paper does not say for how long",
        DRAWS,
        Axis("weight of ME-MAX", log=False),
    ),
    Study(
        "methods",
        "the main table: DINO, MSN, the steps to DINO* and MSN*, and their ensembles",
        main_tables.methods,
        f"{LONG}, one training",
        DRAWS,
        notes=(
            "DINO and MSN of S/16 are the authors' own reproductions; of B, the published models.",
            "The step from DINO is the anti-collapse study's row for Sinkhorn; that from MSN is "
            "not in the paper.",
        ),
    ),
    Study(
        "transfer",
        "logistic regression on other datasets (give --transfer)",
        main_tables.transfer,
        LONG,
        kind="transfer",
    ),
    Study(
        "overhead",
        "time and memory of a step with 1, 4 and 16 heads, instead of accuracy",
        main_tables.overhead,
        "ViT-B/16 on 128 TPUv3 cores: hours of training and GB a core",
        axis=Axis("heads m"),
        kind="overhead",
        common={"optim.batch_size": 256},
        notes=(
            "Ours: S/16 and B/16 as published, at size `smoke` a small network; {b} pictures a "
            "step on one device, {c} codes whatever m; peak memory includes the decoded pictures "
            "that lie on the device.",
        ),
    ),
    Study(
        "diversity",
        "how much heads differ under unif, prob and ent, against accuracy",
        main_tables.diversity,
        "no numbers",
        kind="diversity",
        common={"heads.count": 4},
        notes=(
            "The paper has figures of it and no numbers: `ent` the most diverse, `unif` the least.",
        ),
    ),
)
STUDIES = {study.name: study for study in _ALL}


def known(what: str, name: str, all_of: Mapping[str, Any]) -> Any:
    if name in all_of:
        return all_of[name]
    near = difflib.get_close_matches(name, all_of, 1, cutoff=0)[0]
    raise UserError(f"{what} {name!r} is unknown; did you mean {near!r}? See `wessl study list`")
