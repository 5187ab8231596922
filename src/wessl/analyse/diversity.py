"""What an analysis of the heads found, and how it is written to ``results/diversity.json``.

The file, where ``m`` heads of ``c`` codes were compared on ``n`` pictures. ``index`` counts the
pictures of the data, and is a key of ``gallery``. With one head, whatever
compares two is ``null`` or empty::

    format            1
    kind              "diversity"
    summary           what was found, in words
    definitions       {name: what the number of that name is}
    heads, codes, pictures          m, c, n
    score, score_before             mean over all pairs, after and before alignment
    scores, scores_before           m x m; 0 on the diagonal
    mutual_information, chance      m x m, nats
    adjusted_information            m x m; 0 chance, 1 copies
    curves            {share: [<= 256], before: [...], after: [...]}: mean over all pairs;
                      ``share`` of the codes, 0 to 1, is the x axis
    shown             at most 3 pairs, least diverse first:
                      [{role, heads: [i, j], score, score_before, before: [...], after: [...],
                      matrix_before, matrix_after: <= 64 x 64}]; curves over the same ``share``
    per_head          [{score, codes_used, effective_codes, usage_entropy, entropy,
                      most_confident, silent_codes, sure: [{index, entropy, code}]}]
    agreement         {mean, bins: 20 counts of pictures from 0 to 1} or null
    disagreed         [{index, agreement, codes: [m]}], most disagreed first
    gallery           {number: {name, thumbnail: data URI}} of every picture listed
    temperature, teacher, data, run     where the assignments come from
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from wessl.analyse.align import Alignment
from wessl.analyse.information import Information

LISTED = 8
"""Pictures in each list."""
UNSURE = 0.5
"""Nats below ln c under which likeness tells nothing: the codes of unrelated heads, all of normal
logits, are alike to exp(-2 x that gap), and a little more once aligned: to a half."""

DEFINITIONS = dict(
    similarity="cosine of two codes' columns: the probabilities all pictures give each code",
    alignment="codes of two heads matched one to one so that the summed similarity is largest",
    score="1 - area under the decay curve = 1 - mean similarity of matched codes, mean over pairs "
    "of heads; 0: heads are copies up to the numbering of their codes, 1: nothing in common",
    score_before="the same for codes of equal number, without alignment",
    curves="similarity of matched codes, most alike first, mean over pairs of heads",
    mutual_information="between two heads' likeliest codes of a picture, in nats",
    chance="mutual information after the pictures of one head are shuffled, mean of 4 shuffles",
    adjusted_information="(mutual information - chance) / (mean of the two entropies - chance)",
    codes_used="codes that are the likeliest for at least one picture",
    effective_codes="exp of usage_entropy, the entropy of the mean assignment",
    entropy="mean entropy of a picture's assignment, in nats",
    most_confident="share of pictures for which the head has the lowest entropy; ties are shared",
    silent_codes="codes to which no picture gives any probability; their similarity counts as 0",
    agreement="of the heads on a picture: mean over pairs of heads of the similarity of the two "
    "likeliest codes, which does not depend on any alignment",
    sure="the pictures with the lowest entropy",
    matrices="similarity of 64 evenly spaced codes of each head: by number before alignment, by "
    "rank in the decay curve after it",
)


@dataclass(frozen=True)
class Matrices:
    """A pair of heads to look at: similarity matrices of at most 64 codes a side."""

    role: str
    alignment: Alignment
    before: Tensor
    after: Tensor


@dataclass(frozen=True)
class Diversity:
    """How alike ``m`` heads assign ``n`` pictures to ``c`` codes; all tensors on the CPU."""

    codes: int
    alignments: list[Alignment]
    """One a pair of heads: (0, 1), (0, 2) ... (m - 2, m - 1)."""
    matrices: list[Matrices]
    information: Information
    code_mn: Tensor
    entropy_mn: Tensor
    usage_mc: Tensor
    """Mean probability of each code."""
    silent_m: Tensor
    agreement_n: Tensor | None
    index_n: Tensor
    """The pictures' numbers in their data set."""

    @property
    def heads(self) -> int:
        return len(self.code_mn)

    @property
    def score(self) -> float:
        """0: all heads are copies up to the numbering of codes; 1: nothing in common."""
        return self._mean([a.score for a in self.alignments])

    @property
    def score_before(self) -> float:
        """The same without alignment; near ``score`` when heads number their codes alike."""
        return self._mean([a.score_before for a in self.alignments])

    def _mean(self, values: list[float]) -> float:
        return math.fsum(values) / len(values) if values else math.nan

    def scores(self, before: bool = False) -> Tensor:
        """``(m, m)``, 0 on the diagonal."""
        scores_mm = torch.zeros(self.heads, self.heads, dtype=torch.float64)
        for a in self.alignments:
            i, j = a.heads
            scores_mm[i, j] = scores_mm[j, i] = a.score_before if before else a.score
        return scores_mm

    def curve(self, before: bool = False) -> Tensor:
        """The decay curve ``(c,)``, mean over all pairs of heads."""
        curves = [a.before_c if before else a.after_c for a in self.alignments]
        return torch.stack(curves).mean(0) if curves else torch.empty(0)

    @property
    def most_confident_m(self) -> Tensor:
        """Share of the pictures for which each head has the lowest entropy; ties are shared."""
        lowest_mn = (self.entropy_mn == self.entropy_mn.amin(0)).double()
        return (lowest_mn / lowest_mn.sum(0)).mean(1)

    @property
    def entropy(self) -> float:
        """Of a picture's assignment, mean over pictures and heads; at most ``ln c``."""
        return float(self.entropy_mn.mean(dtype=torch.float64))

    @property
    def usage_entropy_m(self) -> Tensor:
        return torch.special.entr(self.usage_mc).sum(1)

    @property
    def codes_used_m(self) -> Tensor:
        return torch.tensor([len(code_n.unique()) for code_n in self.code_mn])

    def sure(self, head: int, most: int = LISTED) -> Tensor:
        """Places in ``index_n`` of the pictures a head is most sure of, the surest first."""
        return self.entropy_mn[head].sort(stable=True).indices[:most]

    def disagreed(self, most: int = LISTED) -> Tensor:
        """Places in ``index_n`` of the pictures on which the heads agree least."""
        if self.agreement_n is None:
            return torch.empty(0, dtype=torch.long)
        return self.agreement_n.sort(stable=True).indices[:most]

    @property
    def summary(self) -> str:
        """The finding in words."""
        if not self.alignments:
            used = int(self.codes_used_m[0])
            return (
                f"One head: nothing to compare it with. It uses {used} of its {self.codes} codes."
            )
        if math.log(self.codes) - self.entropy < UNSURE:
            return self._unsure
        verdict = "The heads group the pictures in different ways"
        if self.score < 0.5:
            verdict = "The heads share more than they differ"
        if self.score < 0.1:
            verdict = "The heads are nearly copies of one another"
        alike, unaligned = 1 - self.score, 1 - self.score_before
        numbered = "codes of the same number gather different pictures"
        if unaligned > 0.8 * alike:
            numbered = "the heads number their codes alike"
        return (
            f"{verdict}: diversity {self.score:.2f}, where 0 are copies and 1 is nothing in "
            f"common. A code and its partner in another head are alike to {alike:.2f}; "
            f"without alignment to {unaligned:.2f}: {numbered}."
        )

    @property
    def _unsure(self) -> str:
        shared = self._mean([float(self.information.adjusted_mm[a.heads]) for a in self.alignments])
        return (
            f"The heads are hardly sure of anything yet: the codes of a picture have "
            f"{self.entropy:.2f} of at most {math.log(self.codes):.2f} nats of entropy. Codes so "
            f"flat are alike whatever they gather, so diversity {self.score:.2f}, where 0 are "
            f"copies and 1 is nothing in common, does not tell copies from strangers. What the "
            f"likeliest codes have in common is {shared:.2f}, from 0 for chance to 1 for copies."
        )
