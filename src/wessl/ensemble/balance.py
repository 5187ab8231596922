"""How much ME-MAX must weigh beside a sharp teacher, when nothing else evens out the codes."""

import math


def excess_that_wins(me_max: float, sharpness: float, codes: int) -> float:
    """How many times its share one code may have before it gets ever more; inf if it never does.

    ``sharpness`` is the student's temperature over the teacher's. Suppose that a code has more than
    its share whatever the picture, and the others the rest, equally. Cross-entropy pulls its logit
    up by what the teacher gives it beyond the student, ME-MAX down by ``me_max p (1 - p) u``, with
    p its probability and u its logit above the others'. From the p on where both are equal it
    wins: the teacher gives it everything, the student as much as ME-MAX allows. 1 means that any
    excess does; then ME-MAX weighs ``sharpness - 1`` or less.

    >>> [round(excess_that_wins(4.0, sharpness, codes=1024), 2) for sharpness in (4.0, 2.0)]
    [1.2, 12.37]
    >>> excess_that_wins(1.0, sharpness=4.0, codes=1024)
    1.0
    """
    if me_max <= sharpness - 1:
        return 1.0
    others = math.log(codes - 1)

    def probability(logit: float) -> float:
        return 0.5 + 0.5 * math.tanh((logit - others) / 2)

    def pulled_up(u: float) -> bool:
        p = probability(u)
        return probability(sharpness * u) - p > me_max * p * (1 - p) * u

    fine, furthest = 100, 4 * others + 10
    found = next((i for i in range(1, int(fine * furthest)) if pulled_up(i / fine)), None)
    if found is None:
        return math.inf
    low, high = (found - 1) / fine, found / fine
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (low, middle) if pulled_up(middle) else (middle, high)
    return codes * probability(high)
