"""The named studies."""

import difflib
from collections.abc import Mapping
from typing import Any

from wessl.errors import UserError
from wessl.study import grids, main_tables, paper
from wessl.study.cell import Axis, Note, Study

SHORT = "ViT-S/16 on ImageNet-1k, 300 epochs"
LONG = "ViT-S/16 on ImageNet-1k, 800 epochs"
MIXED = "ViT-S/16 on ImageNet-1k; DINO* 300 epochs, MSN* 800"
SEEDS = "standard deviation over seeds"
DRAWS = "standard deviation over 3 draws of the labels"
BOTH = f"{SEEDS} for DINO*, over 3 draws of the labels for MSN*"
ONLY_DRAWN = Note("Most of the paper's numbers exist only as a figure.", of_paper=True)

_ALL = (
    Study(
        "where-how",
        "which part of the head to ensemble, and how to weigh the heads",
        grids.where_how,
        f"{SHORT}, 16 heads, 3 seeds",
        SEEDS,
        notes=(
            Note(
                "`projection` is many projections over one codebook (`heads.share codebook`), "
                "`codebook` many codebooks over one projection (`heads.share projection`).",
                ("projection", "codebook"),
            ),
            Note("`prob, codebook` is not in the paper.", ("prob, codebook",), of_paper=True),
            Note(
                "The paper's 2-shot number of `ent-st`, 39.2, lies below its 1-shot number: "
                "probably a misprint.",
                ("ent-st",),
                of_paper=True,
            ),
        ),
    ),
    Study(
        "prob-variants",
        "prob by student or teacher, soft or hard",
        grids.prob_variants,
        f"{SHORT}, 16 heads, 3 seeds",
        SEEDS,
        notes=(Note("`prob-max` diverged for the authors.", ("prob-max",), of_paper=True),),
    ),
    Study(
        "weightings",
        "all ten weightings of the family, three of which the authors did not run",
        grids.weightings,
        f"{SHORT}, 16 heads, 3 seeds",
        SEEDS,
        notes=(
            Note("`prob-max` diverged for the authors.", ("prob-max",), of_paper=True),
            Note(
                "The authors have no numbers of `unif-all`, `kl` and `var`.",
                ("unif-all", "kl", "var"),
                of_paper=True,
            ),
        ),
    ),
    Study(
        "heads",
        "how many heads, for DINO* and MSN*",
        grids.heads,
        MIXED,
        BOTH,
        Axis("heads m"),
        notes=(ONLY_DRAWN,),
    ),
    Study(
        "gamma",
        "the temperature of entropy weights, for DINO* and MSN*",
        grids.gamma,
        MIXED,
        BOTH,
        Axis("gamma in units of ln c"),
        notes=(
            ONLY_DRAWN,
            Note("For MSN*, so do gamma's values.", ("MSN*",), of_paper=True),
        ),
    ),
    Study(
        "projection",
        "deeper and wider single heads against more heads, by parameters",
        grids.projection,
        SHORT,
        SEEDS,
        Axis("parameters of the heads"),
        notes=(Note("Codebooks count as parameters."), ONLY_DRAWN),
    ),
    Study(
        "teacher-temperature",
        "is it only a sharper teacher? one head at four temperatures, ent beside it",
        grids.teacher_temperature,
        SHORT,
        SEEDS,
        Axis("teacher temperature τ"),
        notes=(ONLY_DRAWN,),
    ),
    Study(
        "codes",
        "few codes or many, with one head and with all",
        grids.codes,
        SHORT,
        SEEDS,
        notes=(
            Note(
                "The paper names the best of each, 4096 codes for one head and 1024 for sixteen.",
                of_paper=True,
            ),
        ),
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
        notes=(
            Note(
                "The paper gives the best of three temperatures, not which one it was.",
                of_paper=True,
            ),
        ),
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
            Note(
                "DINO and MSN of S/16 are the authors' own reproductions; of B, the published "
                "models.",
                ("DINO", "MSN"),
                of_paper=True,
            ),
            Note(
                "The step from DINO is the anti-collapse study's row for Sinkhorn; that from MSN "
                "is not in the paper.",
                ("fewer codes", "MSN* with Sinkhorn"),
                of_paper=True,
            ),
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
            Note(
                "Ours: S/16 and B/16 as published, at size `smoke` a small network; {b} pictures a "
                "step on one device, {c} codes whatever m; peak memory includes the decoded "
                "pictures that lie on the device."
            ),
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
            Note(
                "The paper has figures of it and no numbers: `ent` the most diverse, `unif` the "
                "least."
            ),
        ),
    ),
)
STUDIES = {study.name: study for study in _ALL}


def known(what: str, name: str, all_of: Mapping[str, Any]) -> Any:
    if name in all_of:
        return all_of[name]
    near = difflib.get_close_matches(name, all_of, 1, cutoff=0.5)
    guess = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(all_of)}."
    raise UserError(f"{what} {name!r} is unknown; {guess} See `wessl study list`")
