"""A ``report`` that trackers hear too. None of them stops training, none is told a thing twice."""

import contextlib
import json
import math
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch.distributed as dist

from wessl.files import write_json
from wessl.run import Run
from wessl.track.protocol import Start, State, Tracker, Values
from wessl.track.tensorboard import TensorBoard
from wessl.track.trackio import Trackio
from wessl.track.wandb import WandB

Row = dict[str, Any]
Report = Callable[[Row], None]
Say = Callable[[str], None]
Place = tuple[int, int]
"""A step, and in it: 0 its metrics, 1 its probe, 2 the final results."""

TRACKERS: dict[str, Callable[[Start], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "trackio": Trackio,
}


@contextlib.contextmanager
def tracked(
    report: Report, names: Sequence[str], run: Run, header: State, step: int, say: Say
) -> Iterator[Report]:
    """``report``, with the trackers listening; of many processes the first alone tracks.

    A run without error to the end of the block is a finished one.
    """
    if dist.is_available() and dist.is_initialized() and dist.get_rank() != 0:
        names = ()
    listeners = [Listener(name, run, header, step, say) for name in dict.fromkeys(names)]

    def heard(row: Row) -> None:
        report(row)
        for listener in listeners:
            listener.hear(row)

    try:
        yield heard
    except BaseException:
        for listener in listeners:
            listener.close(failed=True)
        raise
    for listener in listeners:
        listener.finish()


class Listener:
    """One tracker, what it knows already, and what becomes of it when it fails."""

    def __init__(self, name: str, run: Run, header: State, step: int, say: Say):
        self.name, self.run, self.say, self.step = name, run, say, step
        self.tracker: Tracker | None = None
        self.again = False  # what comes is done, and told, a second time
        try:
            self._open(header)
        except Exception as error:
            self._give_up(error)
            return
        for row in run.read_metrics():  # a run tracked from now on, or a tracker that had failed
            if row["step"] <= step:
                self.hear(row)
        self.step, self.again = step, self.told > (step, 2)

    def _open(self, header: State) -> None:
        path = self.run.path / "track.json"
        known = json.loads(path.read_text()).get(self.name) if path.exists() else None
        self.id = known["id"] if known else secrets.token_hex(4)
        self.told: Place = tuple(known["told"]) if known else (-1, 0)
        left_open = known["open"] if known else ""
        start = Start(self.run.path, self.id, header, self.step, known is None, left_open)
        self.tracker = TRACKERS[self.name](start)
        if self.tracker.rewinds:
            self.told = min(self.told, (self.step, 2))
        if self.tracker.holds is not None and self.tracker.holds < self.told[0]:
            self.told = (self.tracker.holds, 1)
        self._remember(self.tracker.session)
        self.say(f"tracking: {self.tracker.where}")

    def hear(self, row: Row) -> None:
        if "message" in row:
            if not self.again:
                step, words = row.get("step", self.step), row["message"]
                self._try(lambda tracker: tracker.message(step, words))
            return
        self.step = row["step"]
        place = (self.step, int("probe" in row))
        self.again = place <= self.told
        if not self.again:
            values = numbers({"probe": row["probe"]} if "probe" in row else row)
            self._try(lambda tracker: tracker.scalars(place[0], values), place)

    def finish(self) -> None:
        rows = self.run.read_metrics()
        if rows and (rows[-1]["step"], 2) > self.told:
            measured = [
                [row for row in rows if ("probe" in row) == probe] for probe in (False, True)
            ]
            values = {k: v for kind in measured if kind for k, v in numbers(kind[-1]).items()}
            step = rows[-1]["step"]
            self._try(lambda tracker: tracker.final(step, values), (step, 2))
        self.close(failed=False)

    def close(self, failed: bool) -> None:
        def act(tracker: Tracker) -> None:
            tracker.close(failed)
            self._remember("")

        self._try(act)
        self.tracker = None

    def _try(self, act: Callable[[Tracker], None], place: Place | None = None) -> None:
        if self.tracker is None:
            return
        try:
            act(self.tracker)
            if place is not None:
                self.told = place
                if self.tracker.keeps:
                    self._remember(self.tracker.session)
        except Exception as error:
            self._give_up(error)

    def _remember(self, session: str) -> None:
        path = self.run.path / "track.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        known[self.name] = dict(id=self.id, told=list(self.told), open=session)
        write_json(path, known)

    def _give_up(self, error: Exception) -> None:
        tracker, self.tracker = self.tracker, None
        words = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(":")
        self.say(
            f"--track {self.name} failed ({words}); it hears no more of this run, which goes on. "
            "The same command fills in what it missed, from metrics.jsonl"
        )
        if tracker is not None:
            with contextlib.suppress(Exception):  # its failure was said
                tracker.close(failed=True)


def numbers(row: Row) -> Values:
    """Every finite number of a row by name; those of a list numbered, as ``head_shares/03``.

    >>> numbers({"step": 50, "loss": 1.5, "rank": None, "head_shares": [0.75, 0.25]})
    {'loss': 1.5, 'head_shares/00': 0.75, 'head_shares/01': 0.25}
    """
    found: Values = {}
    for name, value in row.items():
        if isinstance(value, dict):
            found |= {f"{name}/{k}": v for k, v in numbers(value).items()}
        elif isinstance(value, (list, tuple)):
            found |= numbers({f"{name}/{i:02d}": item for i, item in enumerate(value)})
        elif isinstance(value, (int, float)) and math.isfinite(value) and name != "step":
            found[name] = float(value)
    return found
