"""Small training runs in processes of their own, which may be killed.

Reads lines ``FOLDER RUN [limited|default]`` and forks a process for each, so that torch is imported
once. They save themselves after every step, or with ``default`` as a user's do.
With ``limited`` no file may grow beyond a few kilobytes after some steps in the middle, and again
shortly before the end: a full disk as a process sees it, too small for a checkpoint.
"""

import os
import resource
import sys
from pathlib import Path

import torch._dynamo  # noqa: F401  the first step of an optimiser imports it
from tiny import RECIPES, build_pictures, build_trainer, tiny_config

from wessl.errors import UserError
from wessl.pretrain.loop import train
from wessl.run import Run


def say(words: str) -> None:
    os.write(1, f"{words}\n".encode())  # one call, so that a kill does not cut it in two


def limit(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


def run_small(folder: str, out: str, how: str = "") -> None:
    config = tiny_config(**RECIPES["dino"], epochs=10)
    every = None if how == "default" else 0.0
    trainer = build_trainer(build_pictures(Path(folder)), config, save_every=every, log_every=1)
    run = Run(out) if Run(out).exists else Run.create(out, {})
    state = run.load_checkpoint()
    if state is not None:
        trainer.load_state(state)
    say(f"from {trainer.step}")

    def report(row):
        say(row.get("message", "") or f"step {row['step']}")
        if how == "limited" and "message" not in row:
            tight = row["step"] in range(5, 8) or row["step"] >= trainer.steps - 1
            limit(4096 if tight else resource.RLIM_INFINITY)

    train(trainer, run, report, describe=lambda: {"kind": "vit"})


def main() -> None:
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                run_small(*line.split())
            except UserError as error:
                say(f"error {error}")
                os._exit(error.exit_code)
            except BaseException as error:
                say(f"failed {error!r}")
                os._exit(1)
            os._exit(0)
        say(f"pid {pid}")
        say(f"exit {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}")


if __name__ == "__main__":
    main()
