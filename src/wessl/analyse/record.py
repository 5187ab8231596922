"""A diversity as plain numbers, few enough for a page: the layout is told in ``diversity``."""

from typing import Any

import torch
from torch import Tensor

from wessl.analyse.diversity import DEFINITIONS, Diversity, Matrices
from wessl.data.pictures import spaced

POINTS = 256
"""Points of a curve."""


def record(found: Diversity) -> dict[str, Any]:
    compared = bool(found.alignments)
    return dict(
        format=1,
        kind="diversity",
        summary=found.summary,
        definitions=DEFINITIONS,
        heads=found.heads,
        codes=found.codes,
        pictures=len(found.index_n),
        score=round(found.score, 4) if compared else None,
        score_before=round(found.score_before, 4) if compared else None,
        scores=plain(found.scores()),
        scores_before=plain(found.scores(before=True)),
        mutual_information=plain(found.information.mutual_mm),
        chance=plain(found.information.chance_mm),
        adjusted_information=plain(found.information.adjusted_mm),
        curves=curves(found),
        shown=[shown(pair) for pair in found.matrices],
        per_head=per_head(found),
        agreement=agreement(found),
        disagreed=disagreed(found),
    )


def plain(values: Tensor, digits: int = 4) -> Any:
    return values.double().round(decimals=digits).tolist()


def thin(curve_c: Tensor) -> list[float]:
    return plain(curve_c[spaced(len(curve_c), POINTS)])


def curves(found: Diversity) -> dict[str, list[float]] | None:
    if not found.alignments:
        return None
    share = torch.tensor(spaced(found.codes, POINTS)) / max(1, found.codes - 1)
    return dict(
        share=plain(share), before=thin(found.curve(before=True)), after=thin(found.curve())
    )


def shown(pair: Matrices) -> dict[str, Any]:
    a = pair.alignment
    return dict(
        role=pair.role,
        heads=list(a.heads),
        score=round(a.score, 4),
        score_before=round(a.score_before, 4),
        before=thin(a.before_c),
        after=thin(a.after_c),
        matrix_before=plain(pair.before, 3),
        matrix_after=plain(pair.after, 3),
    )


def per_head(found: Diversity) -> list[dict[str, Any]]:
    others = found.heads - 1
    usage = found.usage_entropy_m
    columns = dict(
        score=plain(found.scores().sum(1) / others) if others else [None],
        codes_used=found.codes_used_m.tolist(),
        effective_codes=plain(usage.exp(), 2),
        usage_entropy=plain(usage),
        entropy=plain(found.entropy_mn.mean(1, dtype=torch.float64)),
        most_confident=plain(found.most_confident_m),
        silent_codes=found.silent_m.tolist(),
        sure=[sure(found, head) for head in range(found.heads)],
    )
    rows = zip(*columns.values(), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def sure(found: Diversity, head: int) -> list[dict[str, Any]]:
    return [
        dict(
            index=int(found.index_n[place]),
            entropy=float(f"{found.entropy_mn[head, place]:.4g}"),
            code=int(found.code_mn[head, place]),
        )
        for place in found.sure(head)
    ]


def agreement(found: Diversity) -> dict[str, Any] | None:
    if found.agreement_n is None:
        return None
    bins = torch.histc(found.agreement_n, 20, 0, 1)
    return dict(
        mean=round(float(found.agreement_n.mean(dtype=torch.float64)), 4),
        bins=bins.long().tolist(),
    )


def disagreed(found: Diversity) -> list[dict[str, Any]]:
    if found.agreement_n is None:
        return []
    return [
        dict(
            index=int(found.index_n[place]),
            agreement=round(float(found.agreement_n[place]), 4),
            codes=found.code_mn[:, place].tolist(),
        )
        for place in found.disagreed()
    ]
