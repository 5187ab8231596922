"""Many processes train as one: the same losses, the same checkpoints, the same decisions."""

import json
import math
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image
from tiny import build_pictures

from wessl.errors import UserError
from wessl.pretrain.place import find_place
from wessl.run import Run

HERE = Path(__file__).parent
STEPS = 20
SHIFTS = {"encoder.norm.bias", "heads.projection.0.bias", "heads.projection.1.norm.running_mean"}
"""What MSN's batch norm takes out again: their gradient is rounding, of which Adam makes whole
steps in any direction."""


class Teams:
    """Asks ``teams.py`` for teams of processes; what the first one returns, or all."""

    def __init__(self, folder: Path):
        self.folder, self.count = folder, 0
        build_pictures(folder)
        self.process = subprocess.Popen(
            [sys.executable, HERE / "teams.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, task, world, **job):
        return self.all(task, world, **job)[0]

    def all(self, task, world, **job):
        self.count += 1
        self.last = self.folder / str(self.count)
        self.last.mkdir(exist_ok=True)
        job |= dict(task=task, world=world, folder=str(self.last), pictures=str(self.folder))
        print(json.dumps(job), file=self.process.stdin, flush=True)
        codes = json.loads(self.process.stdout.readline())
        assert codes == [0] * world
        return [torch.load(self.last / f"{rank}.pt") for rank in range(world)]


@pytest.fixture(scope="module")
def teams(tmp_path_factory):
    teams = Teams(tmp_path_factory.mktemp("teams"))
    yield teams
    teams.process.stdin.close()
    teams.process.wait()


def same_losses(some, others):
    """To rounding. Adam divides by the root of a squared gradient, so it grows from step to step:
    a wrong mean over processes is off by per cents at the second step already."""
    assert len(some["losses"]) == len(others["losses"])
    torch.testing.assert_close(some["losses"][:3], others["losses"][:3], rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(some["losses"], others["losses"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "name", ["dino-star", "dino-star-ent", "dino-star-prob", "msn-star-ent", "dino", "msn"]
)
def test_two_and_three_processes_train_as_one(teams, name):
    alone = teams("take_steps", 1, steps=STEPS, recipe=name)
    assert len(set(alone["losses"])) == STEPS
    for world in (2, 3):
        same_losses(teams("take_steps", world, steps=STEPS, recipe=name), alone)


def test_a_batch_in_parts_over_processes_trains_as_the_whole(teams):
    alone = teams("take_steps", 1, steps=8, recipe="dino-star-ent")
    for way in ("ddp", "fsdp"):
        options, changes = {"parallel": way}, {"accumulate": 3}
        job = dict(steps=8, recipe="dino-star-ent", options=options, changes=changes)
        same_losses(teams("take_steps", 2, **job), alone)


@pytest.mark.parametrize("name", ["dino-star-ent", "dino"])
def test_a_loss_a_view_at_a_time_over_processes_is_that_of_all_at_once(teams, name):
    alone = teams("take_steps", 1, steps=8, recipe=name)
    same_losses(teams("take_steps", 1, steps=8, recipe=name, by_view=True), alone)
    for way in ("ddp", "fsdp"):
        options = {"parallel": way}
        job = dict(steps=8, recipe=name, by_view=True, options=options)
        same_losses(teams("take_steps", 2, **job), alone)


@pytest.mark.parametrize("name", ["dino-star-ent", "msn-star-ent", "dino", "msn"])
def test_shards_train_as_copies(teams, name):
    copies, shards = (
        teams("take_steps", 2, steps=STEPS, recipe=name, options={"parallel": way})
        for way in ("ddp", "fsdp")
    )
    same_losses(shards, copies)
    for network in ("student", "teacher"):
        assert shards["state"][network].keys() == copies["state"][network].keys()
        shifts = SHIFTS if name == "msn" else set()
        assert shifts <= copies["state"][network].keys()
        for key in copies["state"][network].keys() - shifts:
            torch.testing.assert_close(
                shards["state"][network][key],
                copies["state"][network][key],
                rtol=1e-3,
                atol=1e-4,
                msg=key,
            )


@pytest.mark.parametrize(
    ("name", "ways", "worlds"),
    [
        ("dino", ("ddp", "ddp"), (2, 1)),
        ("dino", ("ddp", "ddp"), (2, 3)),
        ("msn", ("ddp", "ddp"), (1, 3)),
        ("msn-star-ent", ("fsdp", "ddp"), (2, 1)),
        ("dino", ("fsdp", "fsdp"), (2, 3)),
        ("msn", ("ddp", "fsdp"), (3, 2)),
    ],
)
def test_a_checkpoint_goes_on_with_another_number_of_processes(teams, name, ways, worlds):
    whole = teams("take_steps", 1, steps=12, recipe=name)
    first = teams("take_steps", worlds[0], steps=6, recipe=name, options={"parallel": ways[0]})
    job = dict(steps=6, recipe=name, options={"parallel": ways[1]}, load=str(teams.last / "0.pt"))
    second = teams("take_steps", worlds[1], **job)
    assert second["state"]["step"] == 12
    same_losses({"losses": first["losses"] + second["losses"]}, whole)


def test_the_metrics_are_of_all_pictures(teams):
    alone = teams("read_metrics", 1, recipe="dino-star-ent")
    for row in teams.all("read_metrics", 3, recipe="dino-star-ent"):
        assert row["codes_used"] == alone["codes_used"]
        assert row["pictures_seen"] == alone["pictures_seen"]
        for name, value in alone.items():
            torch.testing.assert_close(
                torch.tensor(row[name]), torch.tensor(value), rtol=1e-4, atol=1e-5, msg=name
            )


@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def test_nan_in_one_process_is_skipped_by_all(teams, way):
    job = dict(bad=1, recipe="msn", options={"parallel": way})
    one, other = teams.all("take_a_bad_step", 2, **job)
    assert one["skipped"] == other["skipped"] == 1
    assert not one["moved"]
    assert not other["moved"]
    assert all(x.isfinite().all() for x in one["state"]["student"].values())
    if way == "ddp":
        for key, tensor in one["state"]["student"].items():
            assert torch.equal(tensor, other["state"]["student"][key]), key


@pytest.mark.parametrize("asked", [0, 1])
def test_a_signal_to_one_process_saves_and_stops_all_at_the_same_step(teams, asked):
    options = {"log_every": 1, "probe_every": 1}
    signals = [(asked, 5, signal.SIGTERM)]
    ends = teams.all("run_loop", 2, signals=signals, recipe="dino", options=options)
    assert ends[0]["step"] == ends[1]["step"] == 6
    assert {end["words"] for end in ends} == {
        "stopped by SIGTERM at step 6; it is saved, and the same command goes on"
    }
    run = Run(teams.last / "run")
    assert run.load_checkpoint()["step"] == 6
    rows = run.read_metrics()
    assert [row["step"] for row in rows if "loss" in row] == [1, 2, 3, 4, 5, 6]
    assert [row["probe"] for row in rows if "probe" in row] == [{"sum": 0.0}]


def saved_steps(run):
    return [int(path.stem.split("-")[1]) for path in sorted(run.checkpoints.glob("*.pt"))]


def test_what_is_due_or_asked_for_is_saved_once(teams):
    options = {"log_every": 1, "keep": 20}
    usr1 = signal.SIGUSR1
    # One signal, which two processes hear in neighbouring steps.
    teams.all("run_loop", 2, signals=[(0, 5, usr1), (1, 6, usr1)], recipe="dino", options=options)
    assert saved_steps(Run(teams.last / "run")) == [6, 12]
    teams.all("run_loop", 2, nap=4, recipe="dino", options=options | {"save_every": 3.9})
    assert saved_steps(Run(teams.last / "run")) == [6, 12]


@pytest.mark.parametrize("way", ["ddp", "fsdp"])
def test_the_clock_of_the_process_that_writes_decides_for_all(teams, way):
    """By default; the others, whom a save costs nothing, would be due again two steps later."""
    options = {"save_every": None, "keep": 20, "parallel": way}
    ends = teams.all("run_loop", 2, saving=0.6, recipe="dino", options=options)
    assert [end["step"] for end in ends] == [12, 12]
    # A tenth of 12 is passed at step 2, and known to all a step later; then 30 s must pass.
    assert saved_steps(Run(teams.last / "run")) == [3, 12]


def test_a_wish_to_stop_is_not_lost_behind_a_wish_to_save(teams):
    signals = [(0, 5, signal.SIGINT), (1, 5, signal.SIGUSR1)]
    ends = teams.all("run_loop", 2, signals=signals, recipe="dino", options={"log_every": 1})
    assert {end["words"] for end in ends} == {
        "stopped by SIGINT at step 6; it is saved, and the same command goes on"
    }


def test_only_the_first_process_writes_and_its_losses_are_those_of_one(teams):
    options = {"log_every": 1, "save_every": 0, "keep": 2}
    for world in (1, 2):
        teams("run_loop", world, recipe="msn-star-ent", options=options)
        run = Run(teams.last / "run")
        losses = [row["loss"] for row in run.read_metrics() if "loss" in row]
        names = sorted(path.name for path in run.checkpoints.iterdir())
        assert names == [f"step-{s:09d}.{end}" for s in (11, 12) for end in ("json", "pt")]
        if world == 1:
            alone = losses
    assert len(losses) == 12
    assert all(math.isfinite(loss) for loss in losses)
    torch.testing.assert_close(losses, alone, rtol=1e-4, atol=1e-5)


def draw(path):
    """Twelve grey pictures of two classes."""
    for number in range(12):
        file = path / f"{number % 2}/{number:02d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (9, 9), 20 * number).save(file)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: (d / "0/00.png").unlink(), "process 1 finds 11 pictures in {}, process 0 12"),
        (
            lambda d: (d / "0/00.png").rename(d / "0/99.png"),
            "process 1 finds as many pictures in {} as process 0, but under other names",
        ),
    ],
)
def test_processes_that_see_other_pictures_do_not_train_together(teams, change, words):
    folder = teams.folder / str(teams.count + 1)
    for rank in "01":
        draw(folder / rank / "d")
    change(folder / "1/d")
    words = words.format(folder / "1/d")
    words += "; every machine must find the same pictures at the same path"
    assert teams.all("look_apart", 2) == [f"UserError: {words}", f"Elsewhere: {words}"]
    assert not (folder / "run").exists()


def test_a_process_without_a_readable_picture_leaves_the_probe_to_the_others(teams, tmp_path):
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    draw(tmp_path)
    files = sorted(tmp_path.glob("*/*.png"))
    for index in order[6:]:
        files[index].write_bytes(b"not a picture")
    one, other = teams.all("probe", 2, data=str(tmp_path), recipe="dino")
    assert one == teams("probe", 1, data=str(tmp_path), recipe="dino")
    assert 0 <= one["knn"] <= 1
    assert other == {}


def test_a_process_that_waits_in_vain_knows_that_the_others_are_lost(teams):
    waiting, late = teams.all("lose_touch", 2)
    assert waiting == [
        (True, "Timed out waiting 1000ms for recv operation to complete"),
        (True, "Application timeout caused pair closure"),
    ]
    assert [known for known, _ in late] == [True, True]
    assert all(re.fullmatch(r"Connection closed by peer \S+", words) for _, words in late)


def test_what_stops_one_process_stops_all_and_is_said_once(teams):
    assert teams.all("stop_one", 3) == [
        "Elsewhere: no room here",
        "Elsewhere: no room here",
        "UserError: no room here",
    ]


def test_torchrun_and_srun_tell_a_process_its_place():
    torchrun = find_place({"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"})
    assert (torchrun.rank, torchrun.world, torchrun.local_rank) == (5, 8, 1)
    slurm = dict(SLURM_PROCID="3", SLURM_LOCALID="1", SLURM_JOB_ID="70007")
    step = slurm | dict(SLURM_STEP_NUM_TASKS="4", SLURM_STEP_NODELIST="n[012-015]")
    srun = find_place(step)
    assert (srun.rank, srun.world, srun.local_rank) == (3, 4, 1)
    assert srun.address == "tcp://n012:30007"
    assert find_place(step | dict(MASTER_ADDR="here", MASTER_PORT="9")).address == "tcp://here:9"
    assert find_place(slurm | dict(SLURM_NTASKS="4")) is None  # a batch script, without srun
    assert find_place({}) is None
    assert find_place({"RANK": "0", "WORLD_SIZE": "1"}) is None
    with pytest.raises(UserError, match="environment is not whole"):
        find_place({"RANK": "0", "WORLD_SIZE": "two"})
