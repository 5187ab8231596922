"""The loop around the step: log, examine, probe, save, and stop when asked."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from wessl.data.batch import Batch
from wessl.errors import Failure, Interrupted
from wessl.pretrain.cost import flops_per_image, peak_flops
from wessl.pretrain.health import Finding, examine, rhythm
from wessl.pretrain.replay import give_up_on_nonfinite
from wessl.pretrain.saving import Saving, checkpoints_kept
from wessl.pretrain.schedules import Now
from wessl.pretrain.signals import SAVE, listening, take
from wessl.pretrain.trainer import Trainer
from wessl.run import Run

Probe = Callable[[nn.Module], dict[str, float]]
Report = Callable[[dict[str, Any]], None]
Tick = Callable[[int, int, float, int], None]
Batches = Iterator[tuple[Tensor, Batch]]


def silent(step: int, steps: int, epoch: float, pictures: int) -> None:
    """A tick that nobody hears."""


def train(
    trainer: Trainer,
    run: Run,
    report: Report,
    probe: Probe | None = None,
    describe: Callable[[], dict[str, Any]] = dict,
    tick: Tick = silent,
) -> None:
    """Runs to the end from wherever the run folder's last checkpoint is, saving on the way.

    ``report`` hears every row of metrics, ``tick`` every step: its number, of how many, the
    epoch, pictures in a step.
    All processes of a team walk through it alike; those that do not write have an ``Onlooker``.
    """
    options, config, team = trainer.options, trainer.config, trainer.team
    past = [row for row in run.read_metrics() if row["step"] <= trainer.step]
    history = [row for row in past if row.get("loss") is not None]
    log_every, patience = rhythm(options.log_every, trainer.steps)
    spoken = {finding.kind for finding in examine(history, patience)}
    probe_every = (
        options.probe_every or max(1.0, config.optim.epochs / 20)
    ) * trainer.steps_per_epoch
    clock, first, skipped = Clock(trainer), trainer.step, 0
    saving = Saving(options.save_every, trainer.steps, first, trainer.state_bytes)
    with (
        listening(lambda: trainer.step == first) as signals,
        contextlib.closing(trainer.loader.batches(trainer.step)) as batches,
    ):
        while trainer.step < trainer.steps:
            now = trainer.now()
            pictures = next_or_save(batches, trainer, run, report)
            targets, representations = trainer.train_step(trainer.prepare(*pictures))
            step, last = trainer.step, trainer.step == trainer.steps
            tick(step, trainer.steps, step / trainer.steps_per_epoch, config.optim.batch_size)
            skipped = say_skipped(trainer, skipped, run, report)
            if step % log_every == 0 or last:
                row = clock.row(now)
                row |= trainer.meter.read(now.gamma, targets, representations, team)
                trainer.skipped += int(row["skipped_steps"])
                history.append(row)
                record(row, run, report)
                spoken = speak(examine(history, patience), spoken, run, report)
                give_up_on_nonfinite(trainer, run)
            if probe is not None and (
                last or int(step / probe_every) > int((step - 1) / probe_every)
            ):
                result = dict(step=step, epoch=step / trainer.steps_per_epoch)
                result |= {"probe": probe(trainer.taught_encoder())}  # type: ignore[dict-item]
                record(result, run, report)
                clock.restart()
            asked = team.agree(take(signals), saving.due(step))
            stop = asked > SAVE
            if asked or last:
                wait_for(trainer.device)  # or the steps still under way would count as saving
                with saving.timed(step) as seconds:
                    trainer.seconds += seconds
                    save(trainer, run, report, must=stop or last)
            if stop and not last:
                raise Interrupted(
                    asked, f"at step {step}; it is saved, and the same command goes on"
                )
    try:
        run.save_encoder(trainer.taught_encoder().state_dict(), describe())
    except OSError as error:
        raise Failure(f"{error}. Free some space and run the same command again") from error
    if options.keep is None:
        run.keep_newest_checkpoint()


def next_or_save(
    batches: Batches, trainer: Trainer, run: Run, report: Report
) -> tuple[Tensor, Batch]:
    """The next pictures; where there are none to be had, what was learnt is saved first.

    Not in a team: the others are in the middle of a step, and go on from the last checkpoint.
    """
    try:
        return next(batches)
    except Failure:
        if trainer.team.group is None:
            with contextlib.suppress(RuntimeError):  # of a GPU that was lost: its state is lost too
                save(trainer, run, report, must=False)
        raise


def say_skipped(trainer: Trainer, known: int, run: Run, report: Report) -> int:
    """Names pictures that a stream could not decode since the last time; returns their number."""
    if trainer.loader.residency != "stream" or len(trainer.loader.skipped) == known:
        return known
    skipped = trainer.loader.skipped
    for name, reason in skipped[known:]:
        run.log(f"skipped {name}: {reason}")
    words = f"{len(skipped)} unreadable so far, the next ones taken instead: {skipped[known][0]}"
    more = len(skipped) - known - 1
    words += f" and {more} more, see train.log" if more else ""
    report({"step": trainer.step, "message": words})
    return len(skipped)


def record(row: dict[str, Any], run: Run, report: Report) -> None:
    try:
        run.add_metrics(row)
    except OSError as error:
        report({"step": row["step"], "message": f"metrics not written: {error}"})
    report(row)


def save(trainer: Trainer, run: Run, report: Report, must: bool) -> None:
    """A full disk in mid-run is said and survived; at the end of the run it is an error."""
    try:
        run.save_checkpoint(trainer.step, trainer.state(), checkpoints_kept(trainer.options.keep))
    except OSError as error:
        kept = "; the one before is intact" if any(run.checkpoints.glob("step-*.pt")) else ""
        words = f"checkpoint not saved: {error}{kept}. Free some space"
        if must:
            raise Failure(words + " and run the same command again") from error
        tell(words, run, report, step=trainer.step)


def tell(words: str, run: Run, report: Report, **more: Any) -> None:
    """To the run's log, and to whoever listens."""
    run.log(words)
    report({**more, "message": words})


def speak(findings: list[Finding], spoken: set[str], run: Run, report: Report) -> set[str]:
    """Says what is newly wrong, and what is well again; returns what is wrong now."""
    for finding in findings:
        if finding.kind not in spoken:
            tell(f"health: {finding}", run, report)
    for kind in sorted(spoken - {finding.kind for finding in findings}):
        tell(f"health: {kind} is over", run, report)
    return {finding.kind for finding in findings}


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Clock:
    """Speed since the last line, and the share of it spent waiting for pictures."""

    def __init__(self, trainer: Trainer):
        self.trainer = trainer
        cuda = trainer.device.type == "cuda"
        self.peak = peak_flops(torch.cuda.get_device_name(trainer.device)) if cuda else None
        self.restart()

    def restart(self) -> None:
        self.began, self.step = time.perf_counter(), self.trainer.step
        self.wait = self.trainer.loader.wait

    def row(self, now: Now) -> dict[str, Any]:
        trainer = self.trainer
        wait_for(trainer.device)
        seconds = max(1e-9, time.perf_counter() - self.began)
        steps = max(1, trainer.step - self.step)
        images = steps * trainer.config.optim.batch_size
        row = dict(
            step=trainer.step,
            epoch=trainer.step / trainer.steps_per_epoch,
            steps=trainer.steps,
            pictures=len(trainer.loader.pictures),
            images_per_second=images / seconds,
            ms=1e3 * seconds / steps,
            data_wait=(trainer.loader.wait - self.wait) / seconds,
            eta=(trainer.steps - trainer.step) * seconds / steps,
        )
        if self.peak is not None:
            rate = images / seconds / trainer.team.world
            row["mfu"] = rate * flops_per_image(trainer.config) / self.peak
        self.restart()
        return row | dataclasses.asdict(now)
