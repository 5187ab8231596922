"""What a study plans to do, before it does anything."""

from pathlib import Path

from wessl.study.asked import Asked, Planned
from wessl.study.data import find_data
from wessl.study.planning import plan_study
from wessl.study.sizes import SIZES
from wessl.study.studies import STUDIES


def planned(size: str, draws: int | None) -> Planned:
    return plan_study(
        Asked(
            study=STUDIES["where-how"],
            size=SIZES[size],
            data=find_data("builtin://digits", None, None, size),
            out=Path("nowhere"),
            seeds=(0,),
            protocols=("1-shot",),
            options=dict(device="cpu"),
            draws=draws,
        )
    )


def test_asking_for_the_usual_number_of_draws_is_not_another_measurement():
    for size, usual in (("small", 30), ("smoke", 10)):
        assert planned(size, None).record == planned(size, usual).record
        assert planned(size, None).record != planned(size, usual + 1).record
        assert planned(size, None).settings.draws == usual
