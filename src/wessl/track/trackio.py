"""Trackio: its own database on this machine, unless its variables name a Space or a server."""

import contextlib
import io
import os
from collections.abc import Iterator

from wessl.track.protocol import Start, Values


class Trackio:
    keeps = True
    rewinds = False
    session = ""

    def __init__(self, start: Start):
        with unprinted():
            import trackio

            project = os.environ.get("TRACKIO_PROJECT", "wessl")
            self.run = trackio.init(
                project=project,
                name=f"{start.folder.resolve().name}-{start.id}",
                config=start.header,
                resume="allow",
                embed=False,
            )
        # A thread of its own writes twice a second: the last rows before a kill may be missing.
        following = getattr(self.run, "_next_step", None)
        self.holds: int | None = None if following is None else following - 1
        self.where = f"trackio show --project {project}"

    def scalars(self, step: int, values: Values) -> None:
        self.run.log(dict(values), step=step)

    def message(self, step: int, words: str) -> None:
        with unprinted():
            self.run.alert(title=words.partition(":")[0], text=words, step=step)

    def final(self, step: int, values: Values) -> None:
        self.scalars(step, {f"final/{name}": value for name, value in values.items()})

    def close(self, failed: bool) -> None:
        with unprinted():
            self.run.finish()


@contextlib.contextmanager
def unprinted() -> Iterator[None]:
    """It prints on standard output, which is for what the command itself has to say."""
    with contextlib.redirect_stdout(io.StringIO()):
        yield
