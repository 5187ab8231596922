"""``wessl.embed`` and ``wessl embed``: features of any number of pictures, in a file."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from wessl.commands.embed import Embed, check_numbers
from wessl.errors import UserError
from wessl.evaluate.classifiers.knn import neighbours as nearest_rows
from wessl.evaluate.features.progress import bar
from wessl.export.choices import Read
from wessl.export.duplicates import Pairs, near_duplicates
from wessl.export.embed import PART, Embedded, embed_into
from wessl.export.files import Near, beside, writable, write_csv, write_features
from wessl.export.out import check_out
from wessl.export.overwrite import Overwritten
from wessl.export.stream import Look
from wessl.run import Run
from wessl.verbs.encoder_in import Say, open_data, open_encoder, teller


@dataclass(frozen=True)
class Written:
    """What ``wessl.embed`` wrote."""

    path: Path
    """The file asked for."""
    files: tuple[Path, ...]
    """All of them, with those beside it."""
    pictures: int
    width: int
    skipped: tuple[tuple[str, str], ...]
    """Names of pictures that cannot be decoded, and why."""
    pairs: int | None = None
    """Near-duplicates, where they were asked for, and the groups they form."""
    groups: int | None = None


def embed(
    run: str | Path | Run,
    data: str | Path,
    out: str | Path,
    reading: Read = "cls",
    neighbours: int = 0,
    duplicates: float | None = None,
    half: bool = False,
    image_size: int | None = None,
    overwrite: bool = False,
    device: str = "auto",
    batch_size: int = 256,
    part: int = PART,
    workers: int | None = None,
    cache: str | Path | None = None,
    quiet: bool = True,
) -> Written:
    """Writes the features of all pictures of ``data``: an ``.npz``, ``.npy`` or ``.parquet``.

    ``run`` is a run folder or a weights file, shown pictures of the size it was trained for or of
    ``image_size``. Pictures are decoded as they are needed and features
    written ``part`` pictures at a time into ``OUT.parts``, so a folder may be larger than memory,
    and the same call goes on after a kill. ``neighbours`` adds that many nearest pictures to each;
    ``duplicates``, a cosine such as 0.99, lists pairs that are as similar in
    ``OUT.duplicates.csv``. A file that exists is replaced only with ``overwrite``::

        wessl.embed("runs/photos", "photos/", "photos.npz", neighbours=5)
        kept = np.load("photos.npz")
        kept["paths"], kept["features"], kept["neighbours"], kept["similarities"]
    """
    path = Path(out).expanduser()
    check_out(path, overwrite=overwrite)
    check_numbers(neighbours, duplicates, batch_size, part, workers)
    over = Overwritten(path, _beside(path))
    over.refuse("DATA", data)
    over.refuse_encoder(run.path if isinstance(run, Run) else Path(run))
    say = teller(quiet)
    encoder = open_encoder(run, device, say, image_size)
    look = Look(encoder, reading, "float16" if half else "float32", batch_size)
    look.check()
    source = open_data(data, encoder, cache, say)
    over.refuse_pictures(source)
    parts = beside(path, "parts")
    kept = f"; finished parts stay in {parts}: free some space, and the same command goes on"
    with writable(f"-o {path}", kept):
        with bar("embedding", quiet) as progress:
            found = embed_into(parts, look, source, part, workers, progress, say)
        features = close_by(found, encoder.device) if neighbours or duplicates else None
        near = _near(features, neighbours) if neighbours and features is not None else None
        pairs = (
            near_duplicates(features, duplicates) if duplicates and features is not None else None
        )
        files = write_features(path, found, near)
        if pairs is not None:
            files.append(beside(path, "duplicates.csv"))
            _write_pairs(files[-1], pairs, found)
        _remove_old(path, files, say)
    told = Written(
        path, tuple(files), len(found), look.width, tuple(found.skipped),
        None if pairs is None else len(pairs.first),
        None if pairs is None else int(pairs.group.max(initial=0)),
    )  # fmt: skip
    del found, features  # they are mapped from the folder that goes now
    shutil.rmtree(parts)
    return told


def _beside(path: Path) -> list[Path]:
    """All that is written, or removed where it is of an earlier call, but for the file itself."""
    names = ["parts", "skipped.txt", "duplicates.csv"]
    if path.suffix.lower() == ".npy":
        names += ["names.txt", "neighbours.npz"]
    return [beside(path, name) for name in names]


def _remove_old(path: Path, files: list[Path], say: Say) -> None:
    """What an earlier call left beside the file and this one has nothing for."""
    why = {
        "skipped.txt": "every picture was read now",
        "duplicates.csv": "see --duplicates",
        "neighbours.npz": "see --neighbours",
    }
    ours = _beside(path)  # of which none is DATA
    for name, words in why.items():
        listed = beside(path, name)
        if listed in ours and listed not in files and listed.exists():
            listed.unlink()
            say(f"{listed} is removed: it told of an earlier call's features; {words}")


def close_by(found: Embedded, device: torch.device) -> Tensor:
    """The features on a GPU where they take at most half of its free memory."""
    features = torch.from_numpy(found.features)
    if device.type != "cuda" or 2 * features.nbytes > torch.cuda.mem_get_info(device)[0]:
        return features
    return features.to(device)


def _near(features: Tensor, k: int) -> Near:
    if len(features) < 2:
        raise UserError("--neighbours: one picture alone has none")
    similarity, index = nearest_rows(features, k)
    return Near(index.cpu().numpy(), similarity.clamp(-1, 1).cpu().numpy())


def _write_pairs(path: Path, pairs: Pairs, found: Embedded) -> None:
    rows = (
        (group, found.name(first), found.name(second), f"{similarity:.4f}")
        for group, first, second, similarity in zip(*pairs, strict=True)
    )
    write_csv(path, ("group", "path", "other", "similarity"), rows)


def tell(told: Written) -> None:
    print(f"{told.pictures:,} pictures, {told.width} numbers each: {told.path}")
    if told.skipped:
        some = "; ".join(f"{name}: {reason}" for name, reason in told.skipped[:5])
        more = f"; and {len(told.skipped) - 5} more" * (len(told.skipped) > 5)
        listed = beside(told.path, "skipped.txt")
        print(f"{len(told.skipped):,} unreadable, listed in {listed} ({some}{more})")
    if told.pairs is not None:
        listed = beside(told.path, "duplicates.csv")
        groups = f"{told.groups:,} group" + "s" * (told.groups != 1)
        print(
            f"{told.pairs:,} near-duplicate pairs in {groups}: {listed}\n"
            "(near to this encoder, which may see no difference where there is one: look at some)"
        )


def command(asked: Embed) -> None:
    tell(embed(**vars(asked), quiet=False))
