"""Weights & Biases: offline, into the run folder, unless WANDB_MODE says otherwise."""

import os
from pathlib import Path

from wessl.track.protocol import Start, Values


class WandB:
    keeps = False  # its own process writes, seconds later, and dies with ours
    rewinds = False
    holds: int | None = None

    def __init__(self, start: Start):
        mode = os.environ.get("WANDB_MODE", "offline")
        if mode != "online":  # else it would send what goes wrong in it to its makers
            os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        set_aside(start.left_open)
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "wessl"),
            name=os.environ.get("WANDB_NAME", start.folder.resolve().name),
            id=start.id,
            dir=os.environ.get("WANDB_DIR", str(start.folder)),
            mode=mode,
            resume="allow",
            reinit="create_new",  # a run of the caller's own stays theirs
            config=start.header,
            settings=wandb.Settings(silent=True, console="off"),
        )
        self.said: tuple[int, str] = (-1, "")
        self.session = str(Path(self.run.dir).parent)
        self.where = f"wandb sync {self.session}" if self.run.offline else str(self.run.url)

    def scalars(self, step: int, values: Values) -> None:
        self.run.log(dict(values), step=step)

    def message(self, step: int, words: str) -> None:
        """Of one step all messages together: a second value would replace the first."""
        if self.said[0] == step:
            words = f"{self.said[1]}\n{words}"
        self.said = (step, words)
        self.run.log({"message": words}, step=step)

    def final(self, step: int, values: Values) -> None:
        self.run.summary.update({f"final/{name}": value for name, value in values.items()})

    def close(self, failed: bool) -> None:
        self.run.finish(exit_code=int(failed))


def set_aside(session: str) -> None:
    """The file of a killed process is cut short anywhere; all of it is told again.

    It stays, under a name that ``wandb sync`` does not take for a run, unless it was sent already.
    """
    folder = Path(session)
    if session and folder.name.startswith("offline-run-") and not any(folder.glob("*.synced")):
        folder.rename(folder.with_name(f"killed-{folder.name}"))
