"""Results that are there already: taken from the run folder where all that makes them is the same,
measured where anything differs."""

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from torch import Tensor

from wessl.data.labelled.transfer_sets import TransferSet
from wessl.evaluate.contestants import Contestant
from wessl.evaluate.protocol import Result
from wessl.evaluate.protocols.transfer import open_parts, squashed
from wessl.evaluate.settings import Settings
from wessl.evaluate.settings_read import GIVEN, TRANSFER, settings_read
from wessl.evaluate.stores.results import result_key
from wessl.evaluate.suite import measure
from wessl.evaluate.task import Task, side_digest
from wessl.report.words import count

Record = dict[str, Any]
Draws = Mapping[str, list[Tensor]]
MADE = ("command", "versions", "measured")
"""What tells two results apart that are one number."""


def how_made(about: Record) -> Record:
    """What goes into every result, as those of another day may come to stand beside it."""
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    return dict(command=about["command"], versions=about["versions"], measured=now)


@dataclasses.dataclass(frozen=True)
class Known:
    """One encoder on one task: which results are there, and how the others are measured."""

    of: Contestant
    task: Task
    settings: Settings
    given: Draws
    made: Record
    keys: Mapping[str, str]
    results: Mapping[str, Result]

    @classmethod
    def find(
        cls,
        of: Contestant,
        task: Task,
        names: Sequence[str],
        settings: Settings,
        given: Draws,
        made: Record,
    ) -> "Known":
        common: Record = of.sees(settings.precision) | dict(
            train=task.digests[0],
            test=task.digests[1],
            versions=made["versions"],
        )
        classes = len(task.train_labels.unique())
        keys = {
            name: result_key(
                protocol=name,
                settings=settings_read(GIVEN if name in given else name, settings, classes),
                draws=_digest(given.get(name)),
                **common,
            )
            for name in names
        }
        return cls(of, task, settings, given, made, keys, of.results.read(keys))

    def completed(self) -> dict[str, Result]:
        """All of them in the order asked for; those that were missing are kept."""
        missing = [name for name in self.keys if name not in self.results]
        found = dict(self.results)
        for name, result in measure(self.of, self.task, missing, self.settings, self.given):
            found[name] = result | self.made
            self.of.results.write(self.keys[name], found[name])
        return {name: found[name] for name in self.keys if name in found}


def _digest(draws: Sequence[Tensor] | None) -> list[str] | None:
    """Of given lists of labelled pictures; without them the settings say how labels are drawn."""
    if draws is None:
        return None
    return [hashlib.sha256(rows.long().contiguous().numpy().data).hexdigest() for rows in draws]


def transfer_key(
    of: Contestant, dataset: TransferSet, settings: Settings, cache: str | None, made: Record
) -> str:
    """Of one dataset's result, as `Known` has those of a task."""
    parts = open_parts(dataset, squashed(of.like), cache)
    sources = dict(train=dataset.train, val=dataset.val, test=dataset.test)
    return result_key(
        protocol=f"transfer to {dataset.name}",
        metric=dataset.metric,
        split=dataset.split,
        classes=dataset.classes,
        parts={name: side_digest(part.cache, part.labels) for name, part in parts.items()},
        data={name: one and one.fingerprint for name, one in sources.items()},
        settings=settings_read(TRANSFER, settings, len(dataset.classes)),
        versions=made["versions"],
        **of.sees(settings.precision),
    )


def said_of_known(every: Sequence[Mapping[str, Result]]) -> str | None:
    """One line, or None where all is to be measured.

    >>> day = dict(measured="2026-05-01T10:00:00+02:00")
    >>> said_of_known([{"k-NN": day, "1-shot": day}, {}])
    '2 results are from 2026-05-01; --again measures them anew'
    """
    days = sorted({result["measured"][:10] for known in every for result in known.values()})
    if not days:
        return None
    many = sum(map(len, every))
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    verb, them = ("is", "it") if many == 1 else ("are", "them")
    return f"{count(many, 'result')} {verb} from {when}; --again measures {them} anew"
