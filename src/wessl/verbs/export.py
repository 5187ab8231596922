"""``wessl.export`` and ``wessl export``: a trained encoder for timm, Hugging Face or ONNX."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import get_args

from wessl.commands.export import Export
from wessl.errors import UserError
from wessl.export.card import card
from wessl.export.choices import Format
from wessl.export.hf import write_hf
from wessl.export.onnx import check_onnx, write_onnx
from wessl.export.overwrite import Overwritten
from wessl.export.source import Source, read_source
from wessl.export.target import check_target, find_target, write_folder
from wessl.export.timm import write_timm
from wessl.export.told import Told
from wessl.run import Run


def export(
    run: str | Path | Run,
    to: Format,
    out: str | Path | None = None,
    overwrite: bool = False,
    normalise: bool = False,
) -> Path:
    """Writes a run's encoder in another library's format, with a model card; returns the folder.

    ``out`` is the folder to write, by default ``export/FORMAT`` in the run's. It appears whole or
    not at all; an earlier export there is replaced only with ``overwrite``. ``normalise`` puts the
    normalisation of pictures into an ONNX graph, which then takes pixels from 0 to 1::

        wessl.export("runs/photos", "timm")
        wessl.export("runs/photos", "onnx", "exported", normalise=True)
    """
    return _export(run, to, out, overwrite, normalise)[0]


def _export(
    run: str | Path | Run, to: Format, out: str | Path | None, overwrite: bool, normalise: bool
) -> tuple[Path, Told]:
    if to not in get_args(Format):
        raise UserError(f"--to {to}: unknown format; choose one of {', '.join(get_args(Format))}")
    home = Path(run.path if isinstance(run, Run) else run)
    folder = find_target(home, to, out, normalise)
    if to == "onnx":
        check_onnx()
    source = read_source(home)
    check_target(folder, overwrite)
    Overwritten(folder).refuse_encoder(home)
    writers: dict[Format, Callable[[Source, Path], Told]] = dict(
        timm=write_timm, hf=write_hf, onnx=partial(write_onnx, normalise=normalise)
    )

    def everything(new: Path) -> Told:
        told = writers[to](source, new)
        told = replace(
            told,
            facts=[
                *(f"Its training went wrong: {one.rstrip('.')}." for one in source.troubles),
                *told.facts,
            ],
        )
        (new / "README.md").write_text(card(source, told), encoding="utf-8")
        return told

    return folder, write_folder(folder, everything)


def command(asked: Export) -> None:
    folder, told = _export(asked.run, asked.to, asked.out, asked.overwrite, asked.normalise)
    print(f"export: {folder}")
    for path in sorted(folder.glob("[!.]*")):
        size = path.stat().st_size
        print(f"  {path.name}  {f'{size / 1000:,.0f} kB' if size >= 1000 else f'{size} bytes'}")
    print("\n".join(["", *told.load(str(folder)).splitlines(), ""]))
    print("\n".join(f"- {fact}" for fact in told.facts))
