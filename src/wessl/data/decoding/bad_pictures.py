"""Pictures that cannot be decoded: the reason, the list of them, and how many are too many."""

import math
import re

from wessl.errors import Failure

Skipped = list[tuple[str, str]]  # name and reason


class BadPicture(Exception):
    """A file that cannot be decoded; the message is the reason."""


class ShardLost(BadPicture):
    """A picture whose whole shard does not answer, or not now."""


def undecodable(error: Exception, empty: bool = False) -> BadPicture:
    """What is wrong with a file of which a decoder raised this, in words for its owner."""
    if empty:
        return BadPicture("an empty file")
    if isinstance(error, OSError) and error.errno is not None:
        return BadPicture(str(error.strerror))
    # The place in memory that Pillow calls a file by tells nobody anything.
    words = re.sub(r" <_io\.BytesIO object at \w+>", "", str(error))
    if "cannot identify image file" in words:
        return BadPicture("no picture that Pillow knows")
    if "truncated" in words.lower():
        return BadPicture("cut short")
    if pixels := re.search(r"\((\d+) pixels\) exceeds limit", words):
        return BadPicture(f"its {int(pixels[1]):,} pixels are more than Pillow reads")
    return BadPicture(f"damaged: {words}" if words else "damaged")


def check_bad(skipped: Skipped, total: int, max_bad: int | float, tried: int | None = None) -> None:
    """Stop when more pictures failed than allowed: a share up to 1.0, or a number of them.

    ``tried`` is how many were decoded so far, where that is known: the others may be bad too.
    """
    limit = max_bad * total if isinstance(max_bad, float) and max_bad <= 1 else max_bad
    if len(skipped) > limit or len(skipped) == total:
        all_known = tried == total or len(skipped) == total
        least = "" if all_known else "at least "
        so_far = "" if all_known or tried is None else f" (tried so far: {tried:,})"
        first = "".join(f"\n  {name}: {reason}" for name, reason in skipped[:5])
        share = math.ceil(100 * len(skipped) / total) / 100
        enough = f", such as --max-bad {share}" if all_known else ""
        allow = "" if len(skipped) == total else f", or allow a larger share{enough}"
        raise Failure(
            f"{least}{len(skipped)} of {total} pictures cannot be decoded, more than --max-bad "
            f"{max_bad} allows{so_far}; the first:{first}\nRepair or remove them{allow}"
        )
