"""How much ME-MAX must weigh beside a sharp teacher, when nothing else evens out the codes."""

import math


def excess_that_wins(me_max: float, sharpness: float) -> float:
    """How many times its share one code may have before it takes all the others' too.

    ``sharpness`` is the student's temperature over the teacher's. If a code has r times its share
    whatever the picture, the teacher gives it ``r ** sharpness`` times, so that cross-entropy
    pulls it up by ``r ** sharpness - r``; ME-MAX pulls it down by ``me_max r ln r`` (both over c,
    of which there are many). Beyond the r where these are equal it wins. 1 means that any excess
    does: ME-MAX weighs ``sharpness - 1`` or less.

    >>> round(excess_that_wins(4.0, sharpness=4.0), 2), round(excess_that_wins(4.0, 2.0), 2)
    (1.2, 10.35)
    >>> excess_that_wins(1.0, sharpness=4.0)
    1.0
    """
    power = sharpness - 1
    if me_max <= power:
        return 1.0
    if power <= 0:
        return math.inf

    def pull(logarithm: float) -> float:
        return math.expm1(min(700.0, power * logarithm)) - me_max * logarithm

    high = 1.0
    while pull(high) < 0:
        high *= 2
    low = math.log(me_max / power) / power  # where it is least
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if pull(middle) < 0 else (low, middle)
    return math.exp(low) if low < 700 else math.inf
