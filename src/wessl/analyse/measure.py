"""From assignments, batch by batch, to the diversity of the heads that made them."""

from collections.abc import Iterable

import torch
from torch import Tensor

from wessl.analyse.align import Alignment, align_all, pictures
from wessl.analyse.assignments import Assignments
from wessl.analyse.diversity import Diversity, Matrices
from wessl.analyse.information import mutual_information


@torch.no_grad()
def measure(batches_mnc: Iterable[Tensor], index_n: Tensor | None = None) -> Diversity:
    """Diversity of ``m`` heads from their probabilities ``(m, n, c)`` of one batch after another.

    The work is done where the batches are; matching the codes is done on the CPU. ``index_n`` are
    the pictures' numbers in their data set, 0, 1, 2 ... by default.

    >>> one = torch.randn(500, 20).mul(4).softmax(-1)
    >>> copies = torch.stack([one, one[:, torch.randperm(20)]])
    >>> abs(round(measure(copies.split(100, 1)).score, 5))
    0.0
    """
    assignments: Assignments | None = None
    for batch_mnc in batches_mnc:
        if assignments is None:
            m, _, c = batch_mnc.shape
            assignments = Assignments(m, c, batch_mnc.device)
        assignments.add(batch_mnc)
    if assignments is None or not len(assignments):
        raise ValueError("there are no pictures to measure")
    return summarise(assignments, index_n)


def summarise(assignments: Assignments, index_n: Tensor | None = None) -> Diversity:
    """What the collected assignments say."""
    n, alignments = len(assignments), list[Alignment]()
    agreement_n = torch.zeros(n, device=assignments.device)
    for alignment, similar_n in align_all(assignments):
        alignments.append(alignment)
        agreement_n += similar_n / len(assignments.pairs)
    code_mn = assignments.code_mn
    return Diversity(
        codes=assignments.c,
        alignments=alignments,
        matrices=draw(assignments, alignments),
        information=mutual_information(code_mn, assignments.c),
        code_mn=code_mn.cpu(),
        entropy_mn=assignments.entropy_mn.cpu(),
        usage_mc=(assignments.mass_mc / n).cpu(),
        silent_m=assignments.silent_m.cpu(),
        agreement_n=agreement_n.clamp(0, 1).cpu() if alignments else None,
        index_n=torch.arange(n) if index_n is None else index_n,
    )


def draw(assignments: Assignments, alignments: list[Alignment]) -> list[Matrices]:
    """Similarity matrices of the least diverse pair, the one in the middle and the most diverse."""
    ranked = sorted(range(len(alignments)), key=lambda pair: alignments[pair].score)
    last = len(ranked) - 1
    if last < 0:
        return []
    roles = {0: "least diverse", last // 2: "in the middle", last: "most diverse"}
    if last == 0:
        roles = {0: "the only pair"}
    drawn = []
    for place, role in sorted(roles.items()):
        pair = ranked[place]
        before, after = pictures(assignments.cosines(pair), alignments[pair])
        drawn.append(Matrices(role, alignments[pair], before, after))
    return drawn
