"""``wessl.diversity`` and ``wessl diversity``: what the heads of a run learnt, pair by pair."""

import contextlib
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor

from wessl.analyse.assignments import Assignments
from wessl.analyse.diversity import Diversity
from wessl.analyse.measure import summarise
from wessl.analyse.record import record
from wessl.commands.diversity import PICTURES
from wessl.commands.diversity import Diversity as Asked
from wessl.config import Config
from wessl.data.sources.open import open_source
from wessl.errors import UserError
from wessl.evaluate.classifiers.knn import full_precision
from wessl.evaluate.features.trained_encoder import TrainedEncoder
from wessl.pretrain.console import Console
from wessl.pretrain.model import Model
from wessl.pretrain.parallel import Team
from wessl.run import Run, describe_encoder
from wessl.settings import from_dict
from wessl.verbs.diversity_inputs import GROUP, Sample, assignments, load_teacher, open_sample
from wessl.verbs.pages import write_page
from wessl.verbs.sharing import is_first, sharing


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
    kept. The run's page is made anew. Processes that ``torchrun`` started share the pictures out,
    and the first writes::

        found = wessl.diversity("runs/photos", "photos/")
        print(found.score, found.summary)      # 0: all heads are copies; 1: nothing in common
    """
    run = run if isinstance(run, Run) else Run(run)
    if pictures < 2:
        raise UserError(f"--pictures {pictures}: at least 2 are needed to compare anything")
    with sharing(device) as (team, where):
        quiet = quiet or not team.first
        header = run.read_config()
        config = from_dict(Config, header["config"])
        with contextlib.closing(Console(quiet)) as console:
            teacher, step = team.together(lambda: load_teacher(run, config, where, console))
            source = team.together(lambda: open_source(data, config.channels, cache))
            short = config.short_side
            seen = team.in_turn(
                lambda: open_sample(source, pictures, short, cache, console.decoding)
            )
        look = TrainedEncoder(teacher.encoder, describe_encoder(config, **header["normalisation"]))
        found = compare(teacher, look, seen, config, batch_size, team, quiet)
        about = dict(path=str(run.path), step=step, weighting=config.loss.weighting)
        if team.first:
            home = run if out is None else Run(out)
            keep(found, seen, config, about, home)
            if home.exists:  # another folder may hold results alone
                write_page(home.path, lambda words: print(words, file=sys.stderr))
        return found


def compare(
    teacher: Model,
    look: TrainedEncoder,
    seen: Sample,
    config: Config,
    batch_size: int,
    team: Team,
    quiet: bool,
) -> Diversity:
    """Each process assigns its part of the pictures; the first compares what all found."""
    rows = seen.rows.tensor_split(team.world)[team.rank]
    temperature = config.loss.teacher_temperature
    batches = assignments(teacher, look, seen.cache, rows, temperature, batch_size)
    groups = math.ceil(len(rows) / (GROUP * batch_size))
    given = Assignments(config.heads.count, config.heads.codes, look.device)
    with full_precision(look.device):
        for batch_mnc in progress(batches, groups, quiet):
            given.add(batch_mnc)
        if team.group is not None:
            given.join(team.group)
        return team.first_does(lambda: summarise(given, seen.numbers))


def keep(found: Diversity, seen: Sample, config: Config, about: dict[str, Any], home: Run) -> None:
    result = record(found)
    home.path.mkdir(parents=True, exist_ok=True)
    home.save_result(
        "diversity",
        result
        | dict(
            gallery=seen.gallery(result),
            temperature=config.loss.teacher_temperature,
            teacher="plain softmax of the teacher's cosines at its final temperature, centre crop",
            data=seen.describe(config.short_side),
            run=about,
        ),
    )


def progress(batches: Iterable[Tensor], count: int, quiet: bool) -> Iterable[Tensor]:
    from rich.console import Console as Terminal
    from rich.progress import track

    return track(batches, "assigning pictures", count, console=Terminal(stderr=True), disable=quiet)


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


def command(asked: Asked) -> None:
    found = diversity(**vars(asked), quiet=False)
    if is_first():
        print_table(found)
        home = Run(asked.out or asked.run)
        print(f"all of it: {home.results / 'diversity.json'}")
        if home.exists:
            print(f"report: {home.path / 'report.html'}")
