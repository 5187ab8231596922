"""The pictures of a study: those to learn from, and those with labels to be tested on."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from wessl.data.pictures import Pictures
from wessl.data.sources.open import Source, open_source
from wessl.errors import UserError
from wessl.report.words import count

BUILTIN = "builtin://digits"


@dataclass(frozen=True)
class Data:
    """Where the pictures are; without ``test`` a fifth of ``train`` is tested on."""

    train: str
    test: str | None

    def __str__(self) -> str:
        return self.train if self.test is None else f"{self.train}, tested on {self.test}"


def find_data(data: str | None, train: str | None, test: str | None, size: str) -> Data:
    """DATA with its parts, or both parts by name."""
    if train is not None:
        if data is not None:
            raise UserError("give DATA, or --train and --test, not both")
        return Data(train, test)
    if test is not None:
        raise UserError("--test needs --train: which pictures are to be learnt from?")
    if data is None and size == "smoke":
        data = BUILTIN
    if data is None:
        raise UserError(f"--size {size} needs pictures: give DATA, or --train and --test")
    if data == BUILTIN:
        return Data(f"{data}/train", f"{data}/test")
    folder = Path(data)
    if (folder / "train").is_dir():
        for name in ("test", "val"):
            if (folder / name).is_dir():
                return Data(str(folder / "train"), str(folder / name))
        raise UserError(f"{data} has train/ but neither test/ nor val/; give --train and --test")
    return Data(data, None)


def open_labelled(data: str, flag: str, cache: str | None) -> Source:
    source = open_source(data, directory=cache)
    if source.labels is None and source.note:
        raise UserError(f"{flag}: {source.note}")
    if source.labels is None:
        raise UserError(
            f"{flag} {data} has no labels to measure with; give folders named by class, a list "
            "with labels, or an .npz with `labels`"
        )
    return source


def refuse_other_classes(train: Source, test: Source) -> None:
    """Said before hours of training, not after them."""
    unknown = sorted(set(test.classes or ()) - set(train.classes or test.classes or ()))
    if unknown:
        some = ", ".join(unknown[:5]) + (", ..." if len(unknown) > 5 else "")
        raise UserError(
            f"--test {test.location} has {count(len(unknown), 'class', 'classes')} that --train "
            f"{train.location} lacks ({some}); are these the folders you meant?"
        )


def digest(source: Source) -> str:
    """Of the number of pictures, some of them and all labels, wherever they lie."""
    found = hashlib.sha256(Pictures(source, None).sample_digest().encode())
    if source.labels is not None:
        found.update(source.labels.tobytes())
    return found.hexdigest()
