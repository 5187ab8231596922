"""What a study keeps of a run: measurements inside its folder, a failure beside it."""

import json
from pathlib import Path
from typing import Any

from wessl.errors import Diverged, Failure, UserError
from wessl.files import write_json
from wessl.run import Run

State = dict[str, Any]


def is_trained(run: Run) -> bool:
    return all((run.path / name).exists() for name in ("encoder.safetensors", "encoder.json"))


def read_measured(run: Run, record: str) -> State:
    """Column by column, each with its ``value`` and protocol."""
    path = run.results / f"{record}.json"
    return json.loads(path.read_text())["measured"] if path.exists() else {}


def save(run: Run, job: State, measured: State) -> None:
    """Adds to the record, which is replaced as a whole."""
    told = {key: job[key] for key in ("train", "test", "settings", "fingerprint")}
    together = read_measured(run, job["record"]) | measured
    run.save_result(job["record"], dict(format=1, kind="study", measured=together) | told)


def failure_note(folder: Path) -> Path:
    """Beside the folder: a run that was refused before it began has none."""
    return folder.with_name(f"{folder.name}.failed.json")


def in_words(error: Exception | str) -> str:
    """What a user reads: the name of an error of ours says nothing to them."""
    return str(error) if isinstance(error, (UserError, str)) else repr(error)


def note_failure(folder: Path, error: Exception | str) -> None:
    """Left alone by the next study unless ``--retry`` asks for it, where it is nobody's mistake."""
    diverged = isinstance(error, Diverged)
    if_asked = not isinstance(error, UserError) or isinstance(error, Failure)
    folder.parent.mkdir(parents=True, exist_ok=True)
    note = dict(format=2, error=in_words(error), diverged=diverged, only_if_asked=if_asked)
    write_json(failure_note(folder), note)


def read_failure(folder: Path) -> State | None:
    note = failure_note(folder)
    if not note.exists():
        return None
    found: State = json.loads(note.read_text())
    return dict(only_if_asked=found.get("retry", True)) | found  # its name in the first format
