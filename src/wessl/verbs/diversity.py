"""``wessl.diversity`` and ``wessl diversity``: what the heads of a run learnt, pair by pair."""

import contextlib
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
from torch import Tensor

from wessl import plan
from wessl.analyse.diversity import Diversity
from wessl.analyse.measure import measure
from wessl.analyse.record import record
from wessl.config import Config, from_dict
from wessl.data.cache import PictureCache, build_cache
from wessl.data.pictures import Pictures
from wessl.data.sources import open_source
from wessl.errors import UserError
from wessl.evaluate.features import TrainedEncoder
from wessl.evaluate.gallery import thumbnail
from wessl.evaluate.knn import full_precision
from wessl.pretrain.console import Console
from wessl.pretrain.model import Model, build_model
from wessl.run import Run, describe_encoder
from wessl.verbs.header import describe_data

PICTURES = 51_200
"""As many as in the paper."""
SEED = 0
GROUP = 4
"""Batches of the encoder that are assigned to codes at once: large products are quicker."""


def diversity(
    run: str | Path | Run,
    data: str | Path,
    pictures: int = PICTURES,
    device: str = "auto",
    out: str | Path | None = None,
    batch_size: int = 256,
    cache: str | None = None,
    quiet: bool = True,
) -> Diversity:
    """Compares the heads of a run's teacher on pictures, and writes ``results/diversity.json``.

    ``data`` is anything ``wessl.pretrain`` takes; of more than ``pictures`` a fixed random sample
    is taken. The teacher is the run's newest, as a plain softmax at the final temperature, on
    centre crops. ``out`` is another run folder to write to; ``cache`` where decoded pictures are
    kept::

        found = wessl.diversity("runs/photos", "photos/")
        print(found.score, found.summary)      # 0: all heads are copies; 1: nothing in common
    """
    run = run if isinstance(run, Run) else Run(run)
    if pictures < 2:
        raise UserError(f"--pictures {pictures}: at least 2 are needed to compare anything")
    where = plan.find_device(device)
    header = run.read_config()
    config = from_dict(Config, header["config"])
    with contextlib.closing(Console(quiet)) as console:
        teacher, step = load_teacher(run, config, where, console)
        source = open_source(data, config.channels, cache)
        kept = build_cache(source, config.short_side, cache, progress=console.decoding)
    chosen = sample(len(kept), pictures)
    look = TrainedEncoder(teacher.encoder, describe_encoder(config, **header["normalisation"]))
    temperature = config.loss.teacher_temperature
    batches = assignments(teacher, look, kept, chosen, temperature, batch_size)
    groups = math.ceil(len(chosen) / (GROUP * batch_size))
    with full_precision(where):
        found = measure(progress(batches, groups, quiet), chosen)
    result = record(found)
    home = run if out is None else Run(out)
    home.path.mkdir(parents=True, exist_ok=True)
    home.save_result(
        "diversity",
        result
        | dict(
            gallery=listed(result, kept),
            temperature=temperature,
            teacher="plain softmax of the teacher's cosines at its final temperature, centre crop",
            data=describe_data(Pictures(source, config.short_side, kept))
            | dict(sampled=len(chosen), seed=SEED),
            run=dict(path=str(run.path), step=step, weighting=config.loss.weighting),
        ),
    )
    return found


def load_teacher(
    run: Run, config: Config, device: torch.device, console: Console
) -> tuple[Model, int]:
    """The newest teacher with its heads, which only a checkpoint holds."""
    state = run.load_checkpoint(say=console.say)
    if state is None:
        raise UserError(
            f"{run.path} has no whole checkpoint, and the heads are kept nowhere else; "
            "run `wessl pretrain` on it, or give a run that still has its checkpoints/"
        )
    teacher = build_model(config)
    teacher.load_state_dict(state["teacher"])
    return teacher.to(device).eval().requires_grad_(False), state["step"]


def sample(count: int, most: int) -> Tensor:
    """A random choice, the same each time, in the order in which the pictures lie."""
    order = torch.randperm(count, generator=torch.Generator().manual_seed(SEED))
    return order[:most].sort().values


@torch.no_grad()
def assignments(
    teacher: Model,
    look: TrainedEncoder,
    cache: PictureCache,
    chosen: Tensor,
    temperature: float,
    batch_size: int,
) -> Iterator[Tensor]:
    """Probabilities ``(m, n, c)``: the encoder on small batches, the heads on a few together."""
    device = next(teacher.parameters()).device
    for group in chosen.split(GROUP * batch_size):
        parts = [cache.batch(part).map(lambda x: x.to(device)) for part in group.split(batch_size)]
        representations = torch.cat([look.cls(look.prepare(part)) for part in parts])
        yield (teacher.heads(representations) / temperature).softmax(-1)


def progress(batches: Iterable[Tensor], count: int, quiet: bool) -> Iterable[Tensor]:
    from rich.console import Console as Terminal
    from rich.progress import track

    return track(batches, "assigning pictures", count, console=Terminal(stderr=True), disable=quiet)


def listed(result: dict[str, Any], cache: PictureCache) -> dict[str, dict[str, str]]:
    """Every picture the result lists: its name, and itself in small."""
    lists = [result["disagreed"], *(head["sure"] for head in result["per_head"])]
    numbers = sorted({entry["index"] for entries in lists for entry in entries})
    return {
        str(i): dict(name=cache.names[i], thumbnail=thumbnail(cache.picture(i))) for i in numbers
    }


def print_table(found: Diversity) -> None:
    from rich.console import Console as Terminal
    from rich.table import Table

    heads = "1 head" if found.heads == 1 else f"{found.heads} heads"
    table = Table(title=f"{heads} of {found.codes} codes, {len(found.index_n)} pictures")
    columns = ("head", "diversity", "mutual\ninformation", "above\nchance", "codes\nused")
    for column in (*columns, "entropy", "most\nconfident"):
        table.add_column(column, justify="right")
    others = max(1, found.heads - 1)
    mutual_m, adjusted_m = (
        (matrix.sum(1) - matrix.diagonal()) / others
        for matrix in (found.information.mutual_mm, found.information.adjusted_mm)
    )
    for head, row in enumerate(record(found)["per_head"]):
        to_others = (row["score"], mutual_m[head], adjusted_m[head])
        table.add_row(
            str(head),
            *(f"{value:.2f}" if found.alignments else "-" for value in to_others),
            str(row["codes_used"]),
            f"{row['entropy']:.2f}",
            f"{100 * row['most_confident']:.1f} %",
        )
    terminal = Terminal(highlight=False)
    terminal.print(table)
    if found.alignments:
        terminal.print(
            "Diversity and mutual information (in nats, and from 0 for chance to 1 for copies) "
            "are means over the other heads."
        )
    terminal.print(found.summary, markup=False)


def command(words: list[str]) -> None:
    def parse(
        run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")],
        data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")],
        pictures: int = PICTURES,
        device: str = "auto",
        out: str | None = None,
        cache: str | None = None,
    ) -> None:
        """Compare the heads of a run: do they group pictures alike, up to the codes' numbering?

        Args:
            run: The run folder; its newest checkpoint holds the heads.
            data: A folder of pictures, a text file of paths, an .npz, or builtin://digits.
            pictures: How many pictures to look at, at most; of more, a fixed random sample.
            device: cpu, cuda, cuda:1 ...; auto takes a GPU when there is one.
            out: Another run folder for results/diversity.json; default: RUN.
            cache: Where decoded pictures are kept.
        """
        print_table(diversity(run, data, pictures, device, out, cache=cache, quiet=False))
        print(f"all of it: {Run(out or run).results / 'diversity.json'}")

    tyro.cli(parse, args=words, prog="wessl diversity")
