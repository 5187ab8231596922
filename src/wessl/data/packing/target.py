"""Which folders shards may be packed into: told before anything heavy is imported."""

from pathlib import Path

from wessl.errors import UserError

REQUEST = "pack.json"
"""What was asked for; a folder that has it was begun by us."""


def refuse_strange(out: Path) -> None:
    """Never in a folder with other things in it."""
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file; give a new folder")
    if not out.exists() or (out / REQUEST).exists():
        return
    if others := sorted(path.name for path in out.iterdir()):
        raise UserError(
            f"--out {out} is not empty (it holds {', '.join(others[:3])}) and was not begun by "
            "wessl pack; give a new folder"
        )
