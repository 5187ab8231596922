"""``wessl.report`` and ``wessl report``: one page about one run, or several compared."""

import os
from collections.abc import Sequence
from pathlib import Path

from wessl.commands.report import Report
from wessl.errors import Failure, UserError
from wessl.files import write_whole
from wessl.report.page import page
from wessl.report.story import read


def report(runs: str | Path | Sequence[str | Path], out: str | Path | None = None) -> Path:
    """Writes the report of a run, or of several compared with the first, and returns its path.

    ``out`` is the page to write; by default ``report.html`` in the run's folder, for several runs
    in the folder that holds them all::

        wessl.report("runs/photos")
        wessl.report(["runs/one-head", "runs/sixteen-heads"], out="compared.html")
    """
    named = [runs] if isinstance(runs, (str, Path)) else list(runs)
    folders = list({Path(path).resolve(): Path(path) for path in named}.values())
    if not folders:
        raise UserError("no run to report on; give one or more run folders")
    path = Path(out) if out is not None else _home(folders) / "report.html"
    if path.is_dir():
        raise UserError(
            f"-o {path} is a folder; name the page to write, such as {path}/report.html"
        )
    text = page(read(folders))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    except OSError as error:
        raise Failure(f"-o {path}: cannot be written ({error.strerror or error})") from error
    return path


def _home(folders: Sequence[Path]) -> Path:
    if len(folders) == 1:
        return folders[0]
    return Path(os.path.commonpath([folder.resolve().parent for folder in folders]))


def command(asked: Report) -> None:
    print(f"report: {report(asked.runs, asked.out)}")
