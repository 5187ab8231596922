"""What an evaluation works on: the encoders, and labelled pictures that go together."""

from collections.abc import Callable, Iterator, Sequence, Sized
from copy import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from wessl.commands.evaluate import Evaluate
from wessl.data.cache.build import build_cache
from wessl.data.cache.cache import PictureCache
from wessl.data.labelled.split_files import split_draws
from wessl.data.labelled.splits import held_out
from wessl.data.sources.files import is_parts
from wessl.data.sources.open import FileSource, Source, open_source
from wessl.errors import UserError
from wessl.evaluate.contestants import Contestant, untrained
from wessl.evaluate.duplicates import common_pictures
from wessl.evaluate.features.progress import bar
from wessl.evaluate.features.trained_encoder import TrainedEncoder, load
from wessl.evaluate.labels import common_labels
from wessl.evaluate.protocol import HELD_OUT
from wessl.evaluate.stores.features import FeatureStore
from wessl.evaluate.stores.results import ResultStore
from wessl.evaluate.task import Task
from wessl.pretrain.parallel import Team
from wessl.report.measured import STUDENT
from wessl.report.story import short_names
from wessl.report.words import count
from wessl.verbs.encoder_in import other_colours
from wessl.verbs.evaluating.parts import refuse_parts
from wessl.weights import say_of

Say = Callable[[str], None]


def enter(
    asked: Evaluate, device: torch.device, team: Team, say: Say, quiet: bool
) -> Iterator[Contestant]:
    """The runs, the other weights, and last the baselines."""
    _check_paths(asked)
    several = asked.device == "auto" and torch.cuda.device_count() > 1 and team.world == 1
    devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())] if several else None
    first: TrainedEncoder | None = None
    names = short_names(_telling([Path(path) for path in (*asked.run, *asked.also)]))
    # What has no folder of its own is kept with the first run.
    home = next((Path(path) for path in asked.run if Path(path).is_dir()), None)
    for i, path in enumerate([*asked.run, *asked.also]):
        own = i < len(asked.run)
        folder = Path(path) if Path(path).is_dir() else None
        store = FeatureStore(folder, team.group, asked.again)  # before the encoder is read
        network = asked.network if own else "teacher"
        encoder = load(path, device, network, asked.image_size)
        name = names[i] + STUDENT * (own and asked.network == "student")
        for words in say_of(encoder.description, name):
            say(words)
        first = first or encoder
        takes, wanted = (one.description["channels"] for one in (encoder, first))
        if takes != wanted:
            raise UserError(
                f"{path} takes pictures of {count(takes, 'channel')} and {asked.run[0]} of "
                f"{wanted}; evaluate them in two commands"
            )
        results = ResultStore(folder or home, team.group, asked.again)
        role = "run" if own else "also"
        yield Contestant(name, role, encoder, store, device, encoder, quiet, devices, results)
    if asked.baselines and first is not None:
        nowhere = FeatureStore(None, team.group)
        results = ResultStore(home, team.group, asked.again)
        yield Contestant("raw pixels", "pixels", None, nowhere, device, first, quiet, None, results)
        random = untrained(first)
        yield Contestant(
            "random encoder", "random", random, nowhere, device, random, quiet, devices, results
        )


def _telling(paths: list[Path]) -> list[Path]:
    """A run's weights by the run's name: all runs call them alike."""
    return [
        path.parent if path.name == "encoder.safetensors" and path.parent not in paths else path
        for path in paths
    ]


def _check_paths(asked: Evaluate) -> None:
    if not asked.run:
        raise UserError("give a RUN: a run folder, or a weights file")
    if asked.network not in ("teacher", "student"):
        raise UserError(f"--network must be teacher or student, not {asked.network!r}")
    known: dict[Path, str] = {}
    for number, path in enumerate((*asked.run, *asked.also)):
        if not Path(path).exists():
            flag = "--also " if number >= len(asked.run) else ""
            raise UserError(f"{flag}{path} does not exist; give a run folder or a weights file")
        if (same := known.setdefault(Path(path).resolve(), path)) is not path:
            raise UserError(f"{same} and {path} are the same; give it once")


def open_task(asked: Evaluate, contestants: Sequence[Contestant], seed: int, say: Say) -> Task:
    """Both sets decoded for the encoders' channels and sizes, labels matched by class name."""
    train = _open(asked.train, "--train", asked, contestants, say)
    assert train.labels is not None
    if asked.test is None:
        rest, tested = held_out(train.labels, HELD_OUT, seed)
        if not len(tested):
            raise UserError(
                f"--train {asked.train} has one picture a class, none to test on; give --test"
            )
        held = f"{len(tested)} of the {len(train)} pictures {are(tested)} held out"
        say(f"without --test, {held} and tested on")
        task = Task(train, train, train.labels[rest], train.labels[tested], rest, tested)
    else:
        test = _open(asked.test, "--test", asked, contestants, say)
        task = Task(train, test, *common_labels(train, test))
        _check_classes(task, asked)
        if (train.classes is None) != (test.classes is None):
            named = "--test" if train.classes is None else "--train"
            say(f"note: only {named} names its classes; they are matched by number")
    twice = common_pictures(task.train, task.test, task.train_rows, task.test_rows)
    if twice:
        i, j = twice[0]
        say(
            f"warning: {len(twice)} of {len(task.test_labels)} test pictures {are(twice)} also "
            f"among the training pictures ({task.test.names[j]} is {task.train.names[i]}): "
            "accuracies are too good"
        )
    return replace(task, known=len(twice))


def _check_classes(task: Task, asked: Evaluate) -> None:
    unknown = sorted(set(task.test_labels.tolist()) - set(task.train_labels.tolist()))
    if not unknown:
        return
    # Where names decide, those that only --test has are numbered in its order after --train's.
    names = list(dict.fromkeys([*(task.classes or ()), *(task.test.classes or ())]))
    said = [names[i] if i < len(names) else str(i) for i in unknown]
    there = f"; --train has {_some(task.classes)}" if task.classes else ""
    part = "; a folder for each class is needed in it, to tell the classes" * is_parts(set(said))
    raise UserError(
        f"--test {asked.test} has {count(len(said), 'class', 'classes')} that --train "
        f"{asked.train} lacks: {_some(said)}{part}{there}"
    )


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + ", ..." * (len(names) > 10)


def _open(
    data: str | None, flag: str, asked: Evaluate, contestants: Sequence[Contestant], say: Say
) -> PictureCache:
    assert data is not None
    channels = contestants[0].like.description["channels"]
    source = open_source(data, channels, asked.cache)
    refuse_parts(source, data, flag)
    if source.labels is None and (only := _only_class(source)) is not None:
        source.labels, source.classes = np.zeros(len(source), np.int64), [only]
    if source.labels is None:
        raise UserError(
            f"{flag}: {source.note}"
            if source.note
            else f"{flag} {data} has no labels; give folders named by class, a list with labels, "
            "or an .npz with `labels`"
        )
    if source.note:
        say(f"{flag}: {source.note}")
    if note := other_colours(data, channels, asked.cache):
        say(f"{flag}: {note}")
    side = max(256, *(one.like.description["resize"] for one in contestants))
    with bar(f"decoding {data}", contestants[0].quiet) as progress:
        cache = build_cache(source, side, asked.cache, None, asked.max_bad, progress)
    if cache.skipped:
        some = "; ".join(f"{name}: {reason}" for name, reason in cache.skipped[:5])
        more = f"; and {len(cache.skipped) - 5} more" * (len(cache.skipped) > 5)
        left = f"{count(len(cache.skipped), 'unreadable picture')} {are(cache.skipped)} left out"
        say(f"{flag}: {left} ({some}{more})")
    # The source's own: a list's labels may have changed where its pictures have not.
    cache = copy(cache)
    cache.labels = torch.from_numpy(source.labels)[cache.source_index.long()]
    cache.classes = source.classes
    return cache


def are(those: Sized) -> str:
    return "is" if len(those) == 1 else "are"


def _only_class(source: Source) -> str | None:
    """The name of one class folder that holds all pictures: elsewhere one class is no labels."""
    if not isinstance(source, FileSource) or not Path(source.location).is_dir():
        return None
    tops = {name.partition("/")[0] if "/" in name else "" for name in source.names}
    return tops.pop() or None if len(tops) == 1 else None


def read_splits(asked: Evaluate, task: Task) -> dict[str, list[torch.Tensor]]:
    """Draws by the name of their protocol, those with the fewest labels first."""
    if not asked.splits:
        return {}
    if task.train_rows is not None:
        raise UserError("--splits needs --test pictures of their own")
    files = []
    for path in asked.splits:
        inside = sorted(Path(path).rglob("*.txt")) if Path(path).is_dir() else [Path(path)]
        if not inside:
            raise UserError(f"--splits {path} holds no .txt files, at any depth")
        files += inside
    found = sorted(split_draws(files, task.train).items(), key=lambda item: len(item[1][0]))
    return {f"{n}-shot" if isinstance(n, int) else n: rows for n, rows in found}
