"""What embedding and classifying begin with: an encoder, and pictures for it."""

import sys
from collections.abc import Callable
from pathlib import Path

from wessl import plan
from wessl.data.sources.open import Source, open_source
from wessl.errors import UserError
from wessl.evaluate.features.trained_encoder import TrainedEncoder, load
from wessl.run import Run
from wessl.weights import say_of

Say = Callable[[str], None]


def teller(quiet: bool) -> Say:
    def say(words: str) -> None:
        if not quiet:
            print(words, file=sys.stderr, flush=True)

    return say


def open_encoder(
    run: str | Path | Run, device: str, say: Say, image_size: int | None = None
) -> TrainedEncoder:
    path = run.path if isinstance(run, Run) else Path(run)
    if not path.exists():
        raise UserError(f"{path} does not exist; give a run folder or a weights file")
    encoder = load(path, plan.find_device(device), image_size=image_size)
    for words in say_of(encoder.description, path.name):
        say(words)
    if encoder.resized_from is not None:
        shown = encoder.description["image_size"]
        say(f"note: pictures are shown at {shown} pixels instead of {encoder.resized_from}")
    return encoder


def open_data(
    data: str | Path, encoder: TrainedEncoder, cache: str | Path | None, say: Say
) -> Source:
    channels = encoder.description["channels"]
    source = open_source(data, channels, cache)
    if not len(source):
        raise UserError(f"{data} holds no pictures")
    for note in (other_colours(data, channels, cache), source.passed_over):
        if note is not None:
            say(note)
    return source


def other_colours(data: str | Path, channels: int, cache: str | Path | None = None) -> str | None:
    """That an encoder for colour gets grey pictures, or the reverse: it works, less well."""
    remote = "://" in str(data) and not str(data).startswith("builtin://")
    if channels not in (1, 3) or remote:  # opening what is far away once more is not worth it
        return None
    found = open_source(data, None, cache).channels
    if (found, channels) == (1, 3):
        return (
            f"note: the pictures of {data} are grey and the encoder was trained on colour; each is "
            "repeated in all three channels"
        )
    if (found, channels) == (3, 1):
        return (
            f"note: the pictures of {data} are in colour and the encoder was trained on grey ones; "
            "their colour is not seen"
        )
    return None
