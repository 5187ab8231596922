"""Real teams of gloo processes, forked from one that has imported torch already.

Reads lines of JSON ``{"task", "world", "folder", ...}``; every process of the team does the task,
and what each returns is in ``folder/RANK.pt`` when the answer, their exit codes, comes.
"""

import json
import os
import sys
import time
import traceback
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed.fsdp
from tiny import RECIPES, advance, build_trainer, open_pictures, tiny_config

import wessl.ensemble.parts as limits
from wessl.config import Options
from wessl.data.pictures import Pictures
from wessl.data.sources.open import open_source
from wessl.errors import Interrupted, UserError
from wessl.pretrain.console import Console
from wessl.pretrain.loop import train
from wessl.pretrain.onlooker import Onlooker
from wessl.pretrain.parallel import Team, join
from wessl.pretrain.place import Place
from wessl.pretrain.trainer import Trainer
from wessl.run import Run, describe_encoder
from wessl.verbs.launching.launched import first_line, is_lost_connection
from wessl.verbs.pretrain import pretrain_with
from wessl.verbs.pretraining.probe import make_probe

CPU = torch.device("cpu")


def make_trainer(team: Team, pictures: str, recipe: str, **more: Any) -> Trainer:
    config = tiny_config(**{**RECIPES[recipe], **more.get("changes", {})})
    return build_trainer(open_pictures(Path(pictures)), config, team, **more.get("options", {}))


def take_steps(
    team: Team, steps: int, load: str = "", by_view: bool = False, **more: Any
) -> dict[str, Any]:
    """Losses of so many steps, from a checkpoint if given one, and the state they lead to."""
    if by_view:
        limits.PART = 0
    trainer = make_trainer(team, **more)
    if load:
        trainer.load_state(team.share(torch.load(load)["state"] if team.first else None))
    return {"losses": advance(trainer, steps), "state": trainer.state()}


def take_a_bad_step(team: Team, bad: int, **more: Any) -> dict[str, Any]:
    """Five steps, in the third of which one process sees nothing but NaN."""
    trainer = make_trainer(team, **more)
    batches = trainer.loader.batches(0)
    for step in range(5):
        views = trainer.prepare(*next(batches))
        if step == 2 and team.rank == bad:
            views.student[0].fill_(float("nan"))
        before = [p.clone() for p in trainer.student.parameters()]
        trainer.train_step(views)
        if step == 2:
            moved = any((p != q).any() for p, q in zip(trainer.trained, before, strict=True))
    batches.close()
    return {"moved": moved, "skipped": int(trainer.meter.skipped), "state": trainer.state()}


def read_metrics(team: Team, **more: Any) -> dict[str, Any]:
    trainer = make_trainer(team, **more)
    batches = trainer.loader.batches(0)
    for _ in range(4):
        targets, representations = trainer.train_step(trainer.prepare(*next(batches)))
    batches.close()
    return dict(trainer.meter.read(0.3, targets, representations, team))


class Slow(Run):
    saving = 0.0

    def save_checkpoint(self, step: int, state: dict[str, Any], keep: int) -> Path:
        time.sleep(self.saving)
        return super().save_checkpoint(step, state, keep)


def run_loop(
    team: Team,
    folder: str,
    signals: tuple[tuple[int, int, int], ...] = (),
    nap: float = 0,
    saving: float = 0,
    **more: Any,
) -> dict[str, Any]:
    """The loop over a run folder; ``signals`` are for a process at a step, the nap at step 5.

    A checkpoint takes the process that writes it so many seconds ``saving``.
    """
    trainer = make_trainer(team, **more)
    run = Onlooker(folder + "/run")
    if team.first:
        run = Slow.create(folder + "/run", {})
        run.saving = saving
    rows = []

    def report(row: dict[str, Any]) -> None:
        rows.append(row)
        for rank, step, number in signals:
            if "loss" in row and (team.rank, row["step"]) == (rank, step):
                os.kill(os.getpid(), number)
        if "loss" in row and row["step"] == 5:
            time.sleep(nap)

    try:
        train(trainer, run, report, probe=lambda encoder: {"sum": float(team.rank)})
    except Interrupted as stopped:
        return {"step": trainer.step, "words": str(stopped), "rows": rows}
    return {"step": trainer.step, "words": "", "rows": rows}


def look_apart(team: Team, folder: str, **_: Any) -> str:
    """Why processes that find other pictures at one relative path do not train together."""
    os.chdir(f"{folder}/{team.rank}")
    asked: dict[str, Any] = dict(recipe="auto", budget=None, changes={})
    options = Options(device="cpu", cache=f"{folder}/cache")
    silent = Console(quiet=True)
    try:
        pretrain_with("d", f"{folder}/run", options, asked, lambda c: c, silent, team, CPU)
    except UserError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def probe(team: Team, data: str, **more: Any) -> dict[str, float]:
    """k-NN in the middle of training, on labelled pictures that are read as they come."""
    trainer = make_trainer(team, **more)
    config = trainer.config
    labelled = Pictures(open_source(data, config.channels), config.short_side)
    score = make_probe(labelled, describe_encoder(config, trainer.mean, trainer.std), team)
    assert score is not None
    return score(trainer.taught_encoder())


def lose_touch(team: Team, **_: Any) -> list[tuple[bool, str]]:
    """How gloo's errors are understood and shown, while one process keeps the others waiting."""
    hasty = dist.new_group(timeout=timedelta(seconds=1), backend="gloo")
    if team.rank:
        time.sleep(3)
    found = []
    for _ in range(2):
        try:
            dist.all_reduce(torch.ones(1), group=hasty)
        except RuntimeError as error:
            found.append((is_lost_connection(error), first_line(error)))
    return found


def stop_one(team: Team, **_: Any) -> str:
    """What each of three processes raises where only the last one is stopped."""

    def work() -> None:
        if team.rank == 2:
            raise UserError("no room here")

    try:
        team.together(work)
    except UserError as error:
        return f"{type(error).__name__}: {error}"
    return ""


TASKS: dict[str, Callable[..., Any]] = {
    task.__name__: task
    for task in (
        take_steps,
        take_a_bad_step,
        read_metrics,
        run_loop,
        look_apart,
        probe,
        lose_touch,
        stop_one,
    )
}


def run_one(rank: int, job: dict[str, Any], meet: Path) -> None:
    folder, world, task = Path(job["folder"]), job.pop("world"), TASKS[job.pop("task")]
    if task not in (run_loop, look_apart):
        job.pop("folder")
    place = Place(rank, world, rank, f"file://{meet}") if world > 1 else None
    with join(place, CPU, timeout=60) as team:
        torch.save(task(team, **job), folder / f"{rank}.pt")


def fork(rank: int, job: dict[str, Any], meet: Path) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        run_one(rank, job, meet)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        job = json.loads(line)
        meet = Path(job["folder"]) / f"meet-{uuid.uuid4()}"
        pids = [fork(rank, dict(job), meet) for rank in range(job["world"])]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        os.write(1, (json.dumps(codes) + "\n").encode())


if __name__ == "__main__":
    main()
