"""Which settings suit these pictures: short runs around a centre, judged on a held-out fifth.

    python benchmarks/tune.py DATA --out tune --epochs 40 --recipes dino-star dino-star-ent \\
        --centre optim.batch_size=128 optim.lr=1e-3 --vary optim.lr=5e-4,2e-3 heads.codes=64,1024

For every recipe the centre is trained, then the centre with one setting changed, for every value
of ``--vary``; so every method gets the same effort. A stratified fifth of DATA, which must have
labels, takes no part in training and is what all are judged on: k-NN and few-shot accuracy, with
the labels of the other pictures. ``--slots`` runs go side by side. A trial that was done is not
done again. The table goes to the screen and, with every number, to ``OUT/trials.json``.
"""

import argparse
import ast
import hashlib
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SHOTS = ("1-shot", "5-shot", "13-shot")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("data", help="labelled DATA, or a trial to carry out")
    parser.add_argument("--out", type=Path, default=Path("tune"))
    parser.add_argument("--recipes", nargs="+", default=["dino-star", "dino-star-ent"])
    parser.add_argument("--epochs", type=float, default=40)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--centre", nargs="*", default=[], metavar="NAME=VALUE")
    parser.add_argument("--vary", nargs="*", default=[], metavar="NAME=VALUE,VALUE")
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--trial", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.trial:
        carry_out(json.loads(Path(asked.data).read_text()), Path(asked.data).parent)
        return
    fit, held = hold_out(asked.data, asked.out)
    trials = [t | dict(fit=str(fit), held=str(held)) for t in all_trials(asked)]
    with ThreadPoolExecutor(asked.slots) as slots:
        for trial in slots.map(lambda trial: start(trial, asked.out), trials):
            print(line(trial), flush=True)
    done = [trial for trial in trials if "results" in trial]
    (asked.out / "trials.json").write_text(json.dumps(done, indent=1) + "\n")


def all_trials(asked: argparse.Namespace) -> list[dict[str, Any]]:
    centre = dict(value_of(pair) for pair in asked.centre) | {"optim.epochs": asked.epochs}
    changes: list[dict[str, Any]] = [{}]
    for pair in asked.vary:
        name, values = pair.split("=", 1)
        changes += [{name: read(value)} for value in values.split(",")]
    return [
        dict(recipe=recipe, changed=change, settings=centre | change | dict(seed=seed))
        for seed in range(asked.seeds)
        for change in changes
        for recipe in asked.recipes
    ]


def value_of(pair: str) -> tuple[str, Any]:
    name, value = pair.split("=", 1)
    return name, read(value)


def read(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def hold_out(data: str, out: Path) -> tuple[Path, Path]:
    """Two lists of paths and labels: what is trained on, and the fifth that is not."""
    import torch

    from wessl.data.labelled.splits import held_out
    from wessl.data.sources.open import FileSource, open_source

    source = open_source(data)
    if not isinstance(source, FileSource) or source.labels is None:
        sys.exit(f"{data}: labelled picture files are needed, in class folders or a list")
    names = source.classes or [str(n) for n in range(int(source.labels.max()) + 1)]
    out.mkdir(parents=True, exist_ok=True)
    lists = out / "fit.txt", out / "held.txt"
    for path, rows in zip(lists, held_out(torch.from_numpy(source.labels), 0.2), strict=True):
        lines = [f"{source.file(i)}\t{names[source.labels[i]]}\n" for i in rows.tolist()]
        path.write_text("".join(lines))
    return lists


def start(trial: dict[str, Any], out: Path) -> dict[str, Any]:
    key = hashlib.sha256(json.dumps(trial, sort_keys=True).encode()).hexdigest()[:12]
    folder = out / key
    folder.mkdir(parents=True, exist_ok=True)
    result = folder / "result.json"
    if not result.exists():
        (folder / "trial.json").write_text(json.dumps(trial))
        with (folder / "log").open("w") as log:
            program = [sys.executable, __file__, str(folder / "trial.json"), "--trial"]
            subprocess.run(program, stdout=log, stderr=log, env={**os.environ}, check=False)
    if result.exists():
        trial |= json.loads(result.read_text())
    else:
        trial["failed"] = (folder / "log").read_text().strip()[-300:]
    return trial


def carry_out(trial: dict[str, Any], folder: Path) -> None:
    import wessl

    began = time.perf_counter()
    epochs = trial["settings"]["optim.epochs"]
    quick = dict(probe_every=max(1.0, epochs / 4), save_every=1e9, keep=1)
    run = wessl.pretrain(
        trial["fit"], folder / "run", trial["recipe"], quiet=True, **trial["settings"], **quick
    )
    trained = time.perf_counter() - began
    found = wessl.evaluate(
        run.path, trial["fit"], trial["held"], ("k-NN", *SHOTS), baselines=False, draws=30
    )
    results = {k: 100 * v["accuracy"] for k, v in found["rows"][0]["results"].items()}
    rows = [row for row in run.read_metrics() if row.get("loss") is not None]
    speed = sorted(row["images_per_second"] for row in rows)[len(rows) // 2]
    record = dict(results=results, seconds=trained, images_per_second=speed, loss=rows[-1]["loss"])
    (folder / "result.json").write_text(json.dumps(record))


def line(trial: dict[str, Any]) -> str:
    changed = ", ".join(f"{k}={v}" for k, v in trial["changed"].items()) or "centre"
    words = f"{trial['recipe']:14} {changed:36} seed {trial['settings']['seed']}"
    if "failed" in trial:
        return f"{words}  FAILED {trial['failed']}"
    numbers = "  ".join(f"{k} {v:5.1f}" for k, v in trial["results"].items())
    return f"{words}  {numbers}  {trial['seconds']:.0f} s, {trial['images_per_second']:,.0f} img/s"


if __name__ == "__main__":
    main()
