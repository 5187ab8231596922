"""Whether a run keeps to its ``--budget``, reckoned for a machine that does nothing else."""

import time
from collections.abc import Callable
from typing import Any

from wessl.auto import duration
from wessl.pretrain.loop import Report

FAR = 1.5
"""Times its budget, beyond which a run is said to miss it."""
SOON = 0.1
"""The share of a run after which its speed is known."""


def watched(
    report: Report,
    budget: float | None,
    say: Callable[[str], None],
    clock: Callable[[], float] = time.perf_counter,
) -> Report:
    """``report``, and a word, once, when the run will take much longer than ``budget`` seconds."""
    if budget is None:
        return report
    began, said = clock(), False

    def heard(row: dict[str, Any]) -> None:
        nonlocal said
        report(row)
        if said or "eta" not in row or row["step"] < SOON * row["steps"]:
            return
        whole = clock() - began + row["eta"]
        if whole > FAR * budget:
            said = True
            say(
                f"warning: this will take {duration(whole)} instead of the {duration(budget)} of "
                "--budget: the machine is busy with other work, or slower than reckoned. Ctrl-C "
                "saves, and the same command goes on; a new --out with a smaller "
                "--encoder.image-size takes less"
            )

    return heard
