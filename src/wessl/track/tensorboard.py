"""Event files in the run folder, for ``tensorboard --logdir``."""

import json

from wessl.track.protocol import Start, Values


class TensorBoard:
    keeps = True
    rewinds = True
    holds: int | None = None
    session = ""

    def __init__(self, start: Start):
        from torch.utils.tensorboard import SummaryWriter

        folder = start.folder / "tensorboard"
        self.where = f"tensorboard --logdir {folder}"
        purge = None if start.first else start.step + 1
        self.writer = SummaryWriter(str(folder), purge_step=purge)
        if start.first:
            self.writer.add_text("config", fenced(start.header), 0)
        self.writer.flush()

    def scalars(self, step: int, values: Values) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)
        self.writer.flush()

    def message(self, step: int, words: str) -> None:
        self.writer.add_text("message", words, step)
        self.writer.flush()

    def final(self, step: int, values: Values) -> None:
        rows = "".join(f"| {name} | {value:g} |\n" for name, value in values.items())
        self.writer.add_text("results", f"| | at step {step} |\n|---|---|\n{rows}", step)
        self.scalars(step, {f"final/{name}": value for name, value in values.items()})

    def close(self, failed: bool) -> None:
        self.writer.close()


def fenced(header: dict[str, object]) -> str:
    """TensorBoard draws text as Markdown."""
    return f"```json\n{json.dumps(header, indent=2)}\n```"
