"""Weighted nearest neighbours: a picture takes the label its most similar neighbours vote for.

Similarity is the cosine and a neighbour's vote weighs exp(similarity / temperature). Every k of a
sweep is read from one sorted list of the largest k.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from wessl.errors import UserError

_ROWS, _COLUMNS = 1024, 1 << 15  # of the similarity matrix held at once: 128 MiB of float32
_BLOCK = 16  # columns that share one maximum in the first round of the search
_VOTES = 1 << 23  # (test pictures x classes) counted at once: 64 MiB of int64


@torch.no_grad()
def knn(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    k: int | Sequence[int] = (5, 10, 20, 50, 100),
    temperature: float = 0.07,
) -> dict[int, Tensor]:
    """Predict a label `(t,)` for each test picture, for each `k`.

    `train_features` is `(n, d)`, `train_labels` `(n,)` any integers, `test_features` `(t, d)`.
    Features need not be normalised. A `k` above `n` lets all `n` vote. Equally similar neighbours
    are taken in training order and an equal vote goes to the smallest label.

    >>> train, labels = torch.eye(3), torch.tensor([7, 8, 9])
    >>> knn(train, labels, torch.tensor([[0.1, 2.0, 0.3]]), k=(1, 2))
    {1: tensor([8]), 2: tensor([8])}
    """
    ks = _checked_ks(k)
    if not temperature > 0:
        raise UserError(f"temperature must be above 0, not {temperature}")
    check_labelled(train_features, train_labels, "train_features")
    check_finite(test_features, "test_features")
    if train_features.shape[1] != test_features.shape[1]:
        widths = f"{train_features.shape[1]} and {test_features.shape[1]}"
        raise UserError(f"train and test features must be equally wide, not {widths}")
    with full_precision(train_features.device):
        largest = min(max(ks), len(train_features))
        similarity, index = _nearest(train_features, test_features, largest)
    won = votes(similarity, index, train_labels, ks, temperature)
    return {k: w.to(test_features.device) for k, w in won.items()}


def votes(
    similarity_tk: Tensor, index_tk: Tensor, labels: Tensor, ks: Sequence[int], temperature: float
) -> dict[int, Tensor]:
    """The label `(t,)` that the first `k` of the neighbours given by row vote for, for each `k`."""
    classes, target = labels.to(index_tk.device).unique(return_inverse=True)
    rows = max(1, _VOTES // len(classes))
    parts = [
        _vote(s, target[i], ks, temperature, len(classes))
        for s, i in zip(similarity_tk.split(rows), index_tk.split(rows), strict=True)
    ]
    return {k: classes[torch.cat([part[k] for part in parts])] for k in ks}


def knn_accuracy(
    train_features: Tensor,
    train_labels: Tensor,
    test_features: Tensor,
    test_labels: Tensor,
    k: int | Sequence[int] = (5, 10, 20, 50, 100),
    temperature: float = 0.07,
) -> dict[int, float]:
    """The share of test pictures, for each `k`, whose predicted label is theirs."""
    check_labelled(test_features, test_labels, "test_features")
    predicted = knn(train_features, train_labels, test_features, k, temperature)
    return {k: (p == test_labels.to(p.device)).double().mean().item() for k, p in predicted.items()}


@torch.no_grad()
def neighbours(features: Tensor, k: int, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The `k` rows most similar to each row of `features` `(n, d)`, itself left out.

    Cosines, largest first, and row numbers, both `(n, k)`, or `(n, n - 1)` where `k` is more. The
    features may be mapped from a file: they are read in chunks. `rows` are asked about instead of
    all.

    >>> neighbours(torch.tensor([[1.0, 0.0], [0.0, 1.0], [3.0, 4.0]]), k=1)[1].tolist()
    [[2], [2], [1]]
    """
    count = len(features)
    k = min(_checked_ks(k)[0], count - 1)
    with full_precision(features.device):
        similarity, index = _nearest(features, features, k + 1, rows)
    asked = torch.arange(count) if rows is None else rows
    itself = index == asked.to(index.device)[:, None]
    # Among many equal rows a row may miss itself; then one of them is left out in its place.
    itself[:, -1] |= ~itself.any(1)
    return similarity[~itself].view(len(asked), k), index[~itself].view(len(asked), k)


def check_finite(features: Tensor, name: str) -> None:
    """Stop at features that are not a matrix of finite numbers, naming the first bad rows."""
    refuse_other_than_tensor(features, name)
    if features.ndim != 2 or not features.is_floating_point():
        raise UserError(
            f"{name} must be a floating-point matrix (pictures, features), "
            f"not {features.dtype} of shape {tuple(features.shape)}"
        )
    if features.numel() == 0:
        raise UserError(f"{name} is empty: its shape is {tuple(features.shape)}")
    # The largest entry of a row is finite when all are, and needs no mask as large as the features.
    bad = torch.linalg.vector_norm(features, torch.inf, dim=1).isfinite().logical_not().nonzero()
    if len(bad):
        some = ", ".join(str(row) for row in bad[:5, 0].tolist()) + (
            ", ..." if len(bad) > 5 else ""
        )
        raise UserError(f"{name} has NaN or infinite values in {len(bad)} rows: {some}")


def refuse_other_than_tensor(given: object, name: str) -> None:
    if not isinstance(given, Tensor):
        kind = type(given).__name__
        raise UserError(f"{name} must be a torch tensor, not {kind}: give torch.as_tensor({name})")


def check_labelled(features: Tensor, labels: Tensor, name: str) -> None:
    """Stop at features as `check_finite` does, and at labels that are not one integer a row."""
    check_finite(features, name)
    refuse_other_than_tensor(labels, "labels")
    if labels.shape != features.shape[:1] or labels.is_floating_point() or labels.is_complex():
        raise UserError(
            f"labels must be one integer for each of the {len(features)} rows of {name}, "
            f"not {labels.dtype} of shape {tuple(labels.shape)}"
        )


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Keep a training loop's autocast and TF32 out of similarities and gradients."""
    matmul = torch.backends.cuda.matmul
    # From torch 2.9 on; reading the older switch after the newer was used is an error there.
    newer = hasattr(matmul, "fp32_precision")
    switch, exact = ("fp32_precision", "ieee") if newer else ("allow_tf32", False)
    before = getattr(matmul, switch)
    setattr(matmul, switch, exact)
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        setattr(matmul, switch, before)


def _checked_ks(k: int | Sequence[int]) -> list[int]:
    ks = [k] if isinstance(k, int) else list(k)
    if not ks or min(ks) < 1:
        raise UserError(f"k must be one or more whole numbers from 1 up, not {k}")
    return ks


def _nearest(
    train_nd: Tensor, test_td: Tensor, k: int, rows: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Cosines `(t, k)`, largest first, and the training rows they belong to, chunk by chunk.

    Of `test_td` only `rows` are looked at, which are copied a chunk at a time.

    A candidate is one int64: the similarity's bits above, the row's index, inverted, below. No two
    are equal, so their order is total (most similar first, then training order) and does not
    depend on how a top-k resolves ties, nor on the chunks; merging two lists is one top-k.
    """
    parts = (test_td if rows is None else rows).split(_ROWS)
    best = [torch.empty(len(part), 0, dtype=torch.int64, device=train_nd.device) for part in parts]
    for start in range(0, len(train_nd), _COLUMNS):
        columns = _unit(train_nd[start : start + _COLUMNS])
        for i, part in enumerate(parts):
            asked = part if rows is None else test_td[part]
            found = _best_of_chunk(_unit(asked.to(columns.device)), columns, start, k)
            merged = torch.cat([best[i], found], dim=1)
            best[i] = merged.topk(min(k, merged.shape[1]), dim=1).values
    key = torch.cat(best)
    return _float(key >> 32), 0xFFFFFFFF - (key & 0xFFFFFFFF)


def _best_of_chunk(rows_td: Tensor, columns_cd: Tensor, start: int, k: int) -> Tensor:
    """The keys `(t, min(k, c))` of the most similar columns.

    A column among the best k lies in one of the k blocks with the greatest maxima (otherwise k
    other maxima would be ahead of it), so only the blocks' maxima and then k blocks are sorted.
    Blocks are runs of neighbouring columns, so that the rule holds for ties in training order too.
    """
    count = len(columns_cd)
    spare = -count % _BLOCK
    cosine = rows_td @ torch.nn.functional.pad(columns_cd, (0, 0, 0, spare)).T
    cosine[:, count:] = -torch.inf
    blocks_tbs = cosine.unflatten(1, (-1, _BLOCK))
    block = torch.arange(blocks_tbs.shape[1], device=cosine.device)
    maxima = _key(blocks_tbs.amax(dim=2), block.expand(len(cosine), -1))
    chosen = 0xFFFFFFFF - (maxima.topk(min(k, len(block)), dim=1).values & 0xFFFFFFFF)
    inside = chosen[:, :, None] * _BLOCK + torch.arange(_BLOCK, device=cosine.device)
    keys = _key(cosine.gather(1, inside.flatten(1)), inside.flatten(1) + start)
    return keys.topk(min(k, count), dim=1).values


def _unit(features: Tensor) -> Tensor:
    """Rows of length 1 in float32; a row of zeros stays, with similarity 0 to everything.

    Dividing by the largest entry first keeps squares of very large or small features in range.
    """
    wide = features if features.dtype == torch.float64 else features.float()
    tiny = torch.finfo(wide.dtype).tiny
    wide = wide / torch.linalg.vector_norm(wide, torch.inf, dim=1, keepdim=True).clamp_min(tiny)
    return (wide / torch.linalg.vector_norm(wide, dim=1, keepdim=True).clamp_min(tiny)).float()


def _key(similarity: Tensor, index: Tensor) -> Tensor:
    # Adding zero turns -0.0 into 0.0, which must not differ. The exponent and mantissa bits of a
    # negative float are inverted, which makes the integers' order that of the floats.
    bits = (similarity + 0.0).view(torch.int32)
    return ((bits ^ ((bits >> 31) & 0x7FFFFFFF)).long() << 32) | (0xFFFFFFFF - index)


def _float(ordered: Tensor) -> Tensor:
    bits = ordered.int()
    return (bits ^ ((bits >> 31) & 0x7FFFFFFF)).view(torch.float32)


def _vote(
    similarity_tk: Tensor, target_tk: Tensor, ks: Sequence[int], temperature: float, classes: int
) -> dict[int, Tensor]:
    """The class `(t,)` with the most votes among the first `k` neighbours, for each `k`.

    The nearest neighbour's vote counts 1, so exp never overflows. Votes are whole multiples of
    2^-40: integers add up to the same sum in any order, on any device, and ties are ties.
    """
    share = ((similarity_tk - similarity_tk[:, :1]).double() / temperature).exp()
    weight = (share * 2**40).round().long()
    count = weight.new_zeros(len(weight), classes)
    won, seen = {}, 0
    for k in sorted(set(ks)):
        count.scatter_add_(1, target_tk[:, seen:k], weight[:, seen:k])
        won[k], seen = count.argmax(dim=1), k
    return won
