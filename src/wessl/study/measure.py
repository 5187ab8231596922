"""One run of a study: trained, unless it is, and measured, unless it was.

All it leaves is in the run's folder: the record ``results/study-*.json`` holds every measured
column, and a run is finished when its record has all that is asked for.
"""

import shutil
from typing import Any

from wessl.run import Run
from wessl.study.columns import DIVERSITY
from wessl.study.overhead import time_and_memory
from wessl.study.record import failure_note, is_trained, note_failure, read_measured, save
from wessl.study.training import train
from wessl.verbs.diversity import diversity
from wessl.verbs.evaluate import evaluate

State = dict[str, Any]
OF_HEADS = {column.name for column in DIVERSITY}


def carry_out(job: State) -> None:
    """Does what of a job is not done; a failure is noted beside the run's folder."""
    run = Run(job["folder"])
    try:
        measure(run, job)
    except Exception as error:
        note_failure(run.path, error)
        raise
    failure_note(run.path).unlink(missing_ok=True)


def measure(run: Run, job: State) -> None:
    device = job["options"].get("device", "auto")
    if job["kind"] == "overhead":
        save(run, job, time_and_memory(run, job))
        return
    if not is_trained(run):
        train(run, job)
    found = read_measured(run, job["record"])
    wanted = [name for name in job["columns"] if name not in found]
    if job["kind"] == "transfer" and wanted:
        save(run, job, on_other_sets(run, job, device))
        wanted = []
    if "diversity" in wanted or ("diversity" not in found and goes_with_checkpoints(run, job)):
        save(run, job, found_before(run, job) or of_heads(run, job, device))
    protocols = [name for name in wanted if name not in OF_HEADS]
    if protocols:
        measured = evaluate(
            run.path,
            job["train"],
            job["test"],
            protocols,
            baselines=False,
            device=device,
            cache=job["options"].get("cache"),
            **job["settings"],
        )
        results = measured["rows"][0]["results"]
        save(run, job, {name: r | dict(value=r["accuracy"]) for name, r in results.items()})
    if job["slim"]:
        for large in (run.checkpoints, run.path / "features"):
            shutil.rmtree(large, ignore_errors=True)


def on_other_sets(run: Run, job: State, device: str) -> State:
    found = evaluate(
        run.path,
        transfer=job["transfer"],
        baselines=False,
        device=device,
        cache=job["options"].get("cache"),
        **job["settings"],
    )
    (of_run,) = found["transfer"].values()
    return {name: result | dict(value=result["accuracy"]) for name, result in of_run.items()}


def goes_with_checkpoints(run: Run, job: State) -> bool:
    """Whether the heads, of which there are several, can be compared now and never again."""
    return bool(job["slim"] and job["config"]["heads"]["count"] > 1 and has_heads(run))


def has_heads(run: Run) -> bool:
    return any(run.checkpoints.glob("step-*.pt"))


def found_before(run: Run, job: State) -> State | None:
    """By another study, or this one with other draws: heads differ on training pictures alone.

    Heads that are gone stay as they were found, though pictures have changed since.
    """
    gone = not has_heads(run)
    for _, kept in run.read_results():
        measured = kept["measured"] if kept.get("kind") == "study" else {}
        same = measured.keys() >= OF_HEADS and kept["train"] == job["train"]
        if same and (gone or kept.get("fingerprint") == job["fingerprint"]):
            return {name: measured[name] for name in OF_HEADS}
    return None


def of_heads(run: Run, job: State, device: str) -> State:
    found = diversity(run, job["train"], device=device)
    kept = dict(run.read_results())["diversity"]
    shared = dict(curves=kept["curves"], pictures=kept["pictures"])
    return {
        "diversity": dict(value=found.score) | shared,
        "before alignment": dict(value=found.score_before),
    }
