"""``wessl.classify`` and ``wessl classify``: from a handful of labels to one for every picture."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from wessl.commands.classify import Classify
from wessl.data.sources.open import Source, cache_directory
from wessl.errors import UserError
from wessl.evaluate.features.progress import bar
from wessl.export.choices import Read
from wessl.export.classify import Classifier, fit, unit
from wessl.export.embed import Embedded, embed_into, name_of
from wessl.export.files import writable, write_csv
from wessl.export.labels import Labels, read_labels, readable
from wessl.export.out import check_out
from wessl.export.overwrite import Overwritten
from wessl.export.stream import Look
from wessl.export.worth import Rows, margins, typical, undecided
from wessl.run import Run
from wessl.verbs.classify_words import in_words
from wessl.verbs.encoder_in import open_data, open_encoder, teller

HEADER = ("path", "label", "confidence", "second", "second_confidence", "worth_labelling")
_ROWS = 8192


@dataclass(frozen=True)
class Classified:
    """What ``wessl.classify`` found: a guess for every picture without a label, and about them."""

    paths: list[str]
    labels: list[str]
    confidence: list[float]
    second: list[str]
    second_confidence: list[float]
    worth_labelling: list[int]
    """Rows of the lists above, the picture most worth a label first."""
    classifier: Classifier
    counts: dict[str, int]
    """Labelled pictures of each class."""
    skipped: list[tuple[str, str]] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """How good it is likely to be, which classes want labels, what to label next."""
        return in_words(self)


def classify(
    run: str | Path | Run,
    data: str | Path,
    labels: str | Path,
    out: str | Path | None = None,
    classes: Sequence[str] = (),
    suggest: int = 10,
    reading: Read = "cls",
    image_size: int | None = None,
    overwrite: bool = False,
    device: str = "auto",
    batch_size: int = 256,
    workers: int | None = None,
    cache: str | Path | None = None,
    quiet: bool = True,
) -> Classified:
    """Guesses the label of every picture of ``data`` that has none yet, and writes ``out``, a csv.

    ``labels`` is a csv of path and label (paths as in ``data``, beside the csv, absolute, or file
    names that occur once), a folder of class folders, or any DATA with labels. ``classes``, where
    given, are all there may be. ``suggest`` pictures are named as most worth a label. Features are
    kept in the run folder, so that the next call, with more labels, starts at once. The encoder is
    shown pictures of the size it was trained for, or of ``image_size``. A csv that exists is
    replaced only with ``overwrite``::

        found = wessl.classify("runs/photos", "photos/", "labels.csv", "guessed.csv")
        print(found.summary)
    """
    path = None if out is None else Path(out).expanduser()
    home = run.path if isinstance(run, Run) else Path(run)
    over = None
    if path is not None:
        check_out(path, (".csv",), overwrite)
        over = Overwritten(path)
        over.refuse("--labels", labels)
        over.refuse("DATA", data)
        over.refuse_encoder(home)
    if suggest < 0:
        raise UserError(f"--suggest must be 0 or more, not {suggest}")
    say = teller(quiet)
    encoder = open_encoder(run, device, say, image_size)
    look = Look(encoder, reading, batch_size=batch_size)
    look.check()
    source = open_data(data, encoder, cache, say)
    given = read_labels(labels, source, classes, encoder.description["channels"])
    if len(given.inside) == len(source):
        raise UserError(f"every picture of {data} is labelled; there is none to guess")
    given = readable(given, source, look.side)
    sources = [one for one in (source, given.elsewhere) if one is not None]
    if over is not None:
        for one in sources:
            over.refuse_pictures(one)
    found, *others = [_features(home, look, one, workers, cache, quiet) for one in sources]
    names = sorted(given.counts)
    labelled = torch.cat(
        [_labelled(found, given.inside), *(_labelled(o, given.outside) for o in others)]
    )
    targets = torch.tensor([names.index(label) for label in given.every])
    classifier = fit(labelled, targets)
    result = _guess(found, given, labelled, classifier, names, suggest)
    if path is not None:
        with writable(f"-o {path}"):
            write_csv(path, HEADER, _rows(result))
    return result


def _features(
    run: Path,
    look: Look,
    source: Source,
    workers: int | None,
    cache: str | Path | None,
    quiet: bool,
) -> Embedded:
    """Kept in the run folder, or with the decoded pictures where there is no such folder."""
    own = run / "features"
    writes = run.is_dir() and os.access(own if own.exists() else run, os.W_OK | os.X_OK)
    home = own if writes else cache_directory(cache)
    home /= f"stream-{name_of(look, source, own=writes)[:32]}"
    with writable(str(home)), bar("features", quiet) as progress:
        return embed_into(home, look, source, workers=workers, progress=progress)


def _labelled(found: Embedded, labels: dict[int, str]) -> Tensor:
    numbers = np.array(sorted(labels), np.int64)
    rows = np.searchsorted(found.numbers, numbers)
    return torch.from_numpy(found.features[rows].astype(np.float32))


def _guess(
    found: Embedded,
    given: Labels,
    labelled: Tensor,
    classifier: Classifier,
    names: list[str],
    suggest: int,
) -> Classified:
    """The two likeliest classes of every picture without a label, in the order of DATA."""
    known = np.array(sorted(given.inside), np.int64)
    rows = np.flatnonzero(~np.isin(found.numbers, known))
    if not len(rows):
        raise UserError("every readable picture is labelled; there is none to guess")
    likely, number, margin = [], [], []
    for at in range(0, len(rows), _ROWS):
        some = torch.from_numpy(found.features[rows[at : at + _ROWS]])
        probabilities = classifier.probabilities(some)
        margin.append(margins(probabilities))
        best = probabilities.topk(2, dim=1)
        likely.append(best.values)
        number.append(best.indices)
    confidence, label = torch.cat(likely), torch.cat(number)

    def unit_of(chosen: Rows) -> Tensor:
        return unit(torch.from_numpy(found.features[rows[chosen]]))

    if classifier.estimate is None or classifier.guessing:
        worth = typical(unit_of, len(rows), unit(labelled), suggest)
    else:
        worth = undecided(unit_of, torch.cat(margin), suggest)
    return Classified(
        paths=[found.name(row) for row in rows.tolist()],
        labels=[names[i] for i in label[:, 0].tolist()],
        confidence=confidence[:, 0].tolist(),
        second=[names[i] for i in label[:, 1].tolist()],
        second_confidence=confidence[:, 1].tolist(),
        worth_labelling=worth.tolist(),
        classifier=classifier,
        counts=given.counts,
        skipped=found.skipped,
        notes=given.notes,
    )


def _rows(found: Classified) -> Iterator[Sequence[object]]:
    rank = {row: place for place, row in enumerate(found.worth_labelling, 1)}
    columns = zip(
        found.paths, found.labels, found.confidence, found.second, found.second_confidence,
        strict=True,
    )  # fmt: skip
    for row, (path, label, sure, second, less) in enumerate(columns):
        yield path, label, f"{sure:.4f}", second, f"{less:.4f}", rank.get(row, "")


def command(asked: Classify) -> None:
    found = classify(**vars(asked), quiet=False)
    print(found.summary)
    print(f"\nall {len(found.paths):,} guesses: {asked.out}")
