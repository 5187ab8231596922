"""How many logits are held together: for the loss, and for what a run will take."""

PART = 2**26
"""Bytes, where a view does not have more."""


def views_together(heads: int, codes: int, pictures: int) -> int:
    """Views whose logits are computed at a time.

    >>> views_together(16, 1024, 256), views_together(1, 65_536, 256)
    (4, 1)
    """
    return max(1, PART // (4 * heads * codes * pictures))
