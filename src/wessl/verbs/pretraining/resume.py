"""What a run that goes on must have in common with its beginning; anything else is refused."""

import contextlib
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from wessl.config import Config
from wessl.errors import UserError
from wessl.files import sha256
from wessl.run import Run
from wessl.settings import differences, from_dict, to_dict

State = dict[str, Any]
Look = Callable[[Config], State]
"""The pictures asked for, described as a run with this config sees them."""
TYPED_IN = ("", "-c", "-", "ipython", "ipython3", "ipykernel_launcher", "colab_kernel_launcher")
"""What Python calls a program that is no file of the user's."""


def refuse_to_overwrite(run: Run, state: State | None) -> None:
    if state is None and (run.path / "encoder.safetensors").exists():
        raise UserError(
            f"{run.path} holds a finished encoder but no whole checkpoint to go on from; "
            "choose a new --out"
        )


def is_finished(run: Run) -> bool:
    """The encoder is written after the last step."""
    return (run.path / "encoder.safetensors").exists()


def finished_at(run: Run, state: State | None) -> int | None:
    """The last step, if it is made and nothing has to be made again for a damaged checkpoint."""
    if state is None or not is_finished(run):
        return None
    last = max((row["steps"] for row in run.read_metrics() if "steps" in row), default=None)
    return last if last == state["step"] else None


def is_drawn(run: Run) -> bool:
    """Whether a finished run's report is newer than all it tells of."""
    page = run.path / "report.html"
    told = [run.path / "config.json", run.path / "metrics.jsonl", *run.results.glob("*.json")]
    return page.exists() and all(
        path.stat().st_mtime <= page.stat().st_mtime for path in told if path.exists()
    )


def begun_with(old: State) -> str:
    """A sentence with the command that began a run, as it can be typed again, if that is known.

    Of a call from Python the script is all there is to know; of one typed in, as into a notebook,
    there is nothing.

    >>> begun_with({"command": "wessl/__main__.py pretrain 'my photos' --out run"})
    "\\nThe run was begun with:\\n  python -m wessl pretrain 'my photos' --out run"
    """
    first, *words = shlex.split(old.get("command") or "-c")
    program, place = [first], Path(first)
    ours = place.name == "launch.py" and "verbs" in place.parts
    if ours or place.stem in TYPED_IN or place.parent.name == "ipykernel":
        return ""
    launcher = old.get("launcher") or []
    python = [] if launcher[:1] == ["torchrun"] else ["python"]  # which torchrun is itself
    if place.name == "__main__.py":
        program = [*python, "-m", place.parent.name]
    elif place.suffix == ".py":
        program = [*python, first]
    return f"\nThe run was begun with:\n  {shlex.join([*launcher, *program, *words])}"


def config_of(old: State) -> Config:
    """A run's own; before there was a choice, ME-MAX of all its heads counted alike."""
    loss = {"me_max_heads": "alike"} | old["config"]["loss"]
    return cast(Config, from_dict(Config, old["config"] | {"loss": loss}))


def refuse_changes(
    old: State,
    new: Config,
    out: str | Path,
    budget: str | None = None,
    look: Look | None = None,
) -> None:
    """``old`` may come from a version that did not know all of today's settings.

    With ``look``, other pictures are told too: who repairs the one should not run into the other.
    """
    known = config_of(old)
    unread = {"recipe"}
    if not any(config.loss.weighs_me_max(config.heads.count) for config in (known, new)):
        unread.add("loss.me_max_heads")
    changed = [d for d in differences(to_dict(known), to_dict(new)) if d[0] not in unread]
    if changed:
        lines = "\n".join(f"  {name}: {a!r} in the run, {b!r} asked for" for name, a, b in changed)
        if (began := old.get("request", {}).get("budget")) != budget:
            then, now = (given or "none" for given in (began, budget))
            lines = f"  --budget: {then} in the run, {now} asked for, and with it\n{lines}"
        also = None
        if look is not None:
            with contextlib.suppress(UserError):  # of pictures that its channels cannot show
                also = other_data(old, look(known))
        ask = "Ask for the old values"
        if also is not None:
            lines, ask = f"{lines}\nIt was also begun {also}.", f"{ask} and the old pictures"
        raise UserError(
            f"{out} was begun with other settings:\n{lines}\n"
            f"{ask} to resume it, or choose a new --out{begun_with(old)}"
        )


def refuse_other_init(old: State, path: str | None, out: str | Path) -> None:
    init = old["init"]
    if path is not None and describe_init(path) != init:
        begun = "random weights" if init is None else f"--init {init['path']}"
        raise UserError(
            f"{out} was begun from {begun}, not --init {path}; choose a new --out{begun_with(old)}"
        )


def begun_from(old: State | None, path: str | None, request: State) -> str | None:
    """The weights that a config is made for: a run that goes on as it was has its own already."""
    if old is None:
        return path
    began = None if old["init"] is None else str(old["init"]["path"])
    return None if old["request"] == request else path or began


def refuse_other_data(old: State, new: State, out: str | Path) -> None:
    if (words := other_data(old, new)) is not None:
        raise UserError(
            f"{out} was begun {words}; give it the pictures it began with, or choose a new "
            f"--out{begun_with(old)}"
        )


def other_data(old: State, new: State) -> str | None:
    """By all that both descriptions know: a streamed run does not know the size of each picture."""
    data = old["data"]
    both = [k for k in ("digest", "sample") if data.get(k) is not None and new.get(k) is not None]
    if all(data[key] == new[key] for key in both):
        return None
    return (
        f"on {data['pictures']} pictures of {data['location']}, and the {new['pictures']} of "
        f"{new['location']} are not the same"
    )


def refuse_other_jpeg(old: State, jpeg: str, out: str | Path) -> None:
    """``old`` may come from a version in which only the CPU decoded."""
    began = old["options"].get("jpeg", "cpu")
    if jpeg != began:
        raise UserError(
            f"{out} was begun with --jpeg {began}, whose pixels are not quite those of --jpeg "
            f"{jpeg}; give --jpeg {began}, or choose a new --out{begun_with(old)}"
        )


def describe_init(path: str | None) -> State | None:
    if path is None:
        return None
    place = Path(path) / "encoder.safetensors" if Path(path).is_dir() else Path(path)
    if not place.exists():
        raise UserError(f"--init {path} does not exist; give a run folder or a weights file")
    return dict(path=str(path), sha256=sha256(place))
