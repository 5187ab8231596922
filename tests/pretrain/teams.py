"""Real teams of gloo processes, forked from one that has imported torch already.

Reads lines of JSON ``{"task", "world", "folder", ...}``; every process of the team does the task,
and what each returns is in ``folder/RANK.pt`` when the answer, their exit codes, comes.
"""

import json
import os
import signal
import sys
import traceback
import uuid
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed.fsdp
from tiny import RECIPES, advance, build_trainer, open_pictures, tiny_config

from wessl.errors import Interrupted, UserError
from wessl.pretrain.loop import train
from wessl.pretrain.onlooker import Onlooker
from wessl.pretrain.parallel import Team, join
from wessl.pretrain.place import Place
from wessl.pretrain.trainer import Trainer
from wessl.run import Run

CPU = torch.device("cpu")


def make_trainer(team: Team, pictures: str, recipe: str, **more: Any) -> Trainer:
    config = tiny_config(**{**RECIPES[recipe], **more.get("changes", {})})
    return build_trainer(open_pictures(Path(pictures)), config, team, **more.get("options", {}))


def take_steps(team: Team, steps: int, load: str = "", **more: Any) -> dict[str, Any]:
    """Losses of so many steps, from a checkpoint if given one, and the state they lead to."""
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


def run_loop(team: Team, folder: str, asked: int = -1, **more: Any) -> dict[str, Any]:
    """The loop over a run folder; at step 5 the process ``asked`` is told to save and stop."""
    trainer = make_trainer(team, **more)
    run = Run.create(folder + "/run", {}) if team.first else Onlooker(folder + "/run")
    rows = []

    def report(row: dict[str, Any]) -> None:
        rows.append(row)
        if row.get("step") == 5 and team.rank == asked:
            os.kill(os.getpid(), signal.SIGTERM)

    try:
        train(trainer, run, report, probe=lambda encoder: {"sum": float(team.rank)})
    except Interrupted as stopped:
        return {"step": trainer.step, "words": str(stopped), "rows": rows}
    return {"step": trainer.step, "words": "", "rows": rows}


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


TASKS = {task.__name__: task for task in (take_steps, take_a_bad_step, read_metrics, run_loop)}
TASKS["stop_one"] = stop_one


def run_one(rank: int, job: dict[str, Any], meet: Path) -> None:
    folder, world, task = Path(job["folder"]), job.pop("world"), TASKS[job.pop("task")]
    if task is not run_loop:
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
