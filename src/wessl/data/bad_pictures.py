"""Pictures that cannot be decoded: the reason, the list of them, and how many are too many."""

import re

from wessl.errors import Failure

Skipped = list[tuple[str, str]]  # name and reason


class BadPicture(Exception):
    """A file that cannot be decoded; the message is the reason."""


class ShardLost(BadPicture):
    """A picture whose whole shard does not answer, or not now."""


def undecodable(error: Exception) -> BadPicture:
    """In the decoder's words, but for the place in memory that Pillow calls a file by."""
    words = re.sub(r" <_io\.BytesIO object at \w+>", "", str(error))
    return BadPicture(f"{type(error).__name__}: {words}")


def check_bad(skipped: Skipped, total: int, max_bad: int | float) -> None:
    """Stop when more pictures failed than allowed: a share up to 1.0, or a number of them."""
    limit = max_bad * total if isinstance(max_bad, float) and max_bad <= 1 else max_bad
    if len(skipped) > limit or len(skipped) == total:
        first = "".join(f"\n  {name}: {reason}" for name, reason in skipped[:5])
        raise Failure(
            f"{len(skipped)} of {total} pictures cannot be decoded, more than --max-bad {max_bad} "
            f"allows; the first:{first}\nRepair or remove them, or allow more"
        )
