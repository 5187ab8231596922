"""What embedding and classifying begin with: an encoder, and pictures for it."""

import sys
from collections.abc import Callable
from pathlib import Path

from wessl import plan
from wessl.data.sources import Source, open_source
from wessl.errors import UserError
from wessl.evaluate.features import TrainedEncoder, load
from wessl.run import Run

Say = Callable[[str], None]


def teller(quiet: bool) -> Say:
    def say(words: str) -> None:
        if not quiet:
            print(words, file=sys.stderr, flush=True)

    return say


def open_encoder(run: str | Path | Run, device: str, say: Say) -> TrainedEncoder:
    path = run.path if isinstance(run, Run) else Path(run)
    if not path.exists():
        raise UserError(f"{path} does not exist; give a run folder or a weights file")
    encoder = load(path, plan.find_device(device))
    for what, why in sorted(encoder.description.get("left_out", {}).items())[:8]:
        say(f"{path.name}: {what} is not used ({why})")
    for note in encoder.description.get("notes", ()):
        say(f"{path.name}: {note}")
    return encoder


def open_data(
    data: str | Path, encoder: TrainedEncoder, cache: str | Path | None, say: Say
) -> Source:
    source = open_source(data, encoder.description["channels"], cache)
    if not len(source):
        raise UserError(f"{data} holds no pictures")
    return source
