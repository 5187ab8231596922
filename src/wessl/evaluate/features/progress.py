"""A progress bar for what takes a while: `progress(done, total)` as the functions here call it."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from wessl.evaluate.features.passes import Progress


@contextmanager
def bar(words: str, quiet: bool = False) -> Iterator[Progress | None]:
    """A bar on the error stream while it is a terminal, nothing elsewhere.

    It is there from the first count on: what is found ready has none.

    ::

        with bar("features of photos/") as progress:
            extract(encoder, cache, progress=progress)
    """
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()
    shown = Bar(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    with shown:
        task = shown.add_task(words, total=None, visible=False)
        yield lambda done, total: shown.update(task, completed=done, total=total, visible=True)
