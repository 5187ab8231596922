"""The training of one run of a study."""

import time
from typing import Any

from wessl import recipes
from wessl.config import Config, Options
from wessl.errors import Busy
from wessl.pretrain.console import Console
from wessl.run import Run
from wessl.settings import differences, from_dict, to_dict
from wessl.verbs.pretrain import pretrain_with

State = dict[str, Any]
LOOK_AGAIN = 0.5
"""Seconds between two looks at a run that another process is training."""


def train(run: Run, job: State) -> None:
    """Begins, or goes on. Waits while another process trains it: two studies may share a run."""
    config: Config = from_dict(Config, job["config"])
    options: Options = from_dict(Options, job["options"], "options")
    # The config is whole already, so the recipe it is put on decides nothing.
    published = config.recipe if config.recipe in recipes.names() else "dino-star/vits16"
    changed = differences(to_dict(recipes.recipe(published)), to_dict(config))
    changes = {name: repr(value) for name, _, value in changed}
    request = dict(recipe=published, budget=None, changes=changes)
    while True:
        try:
            pretrain_with(
                job["train"], run.path, options, request, lambda _: config, Console(quiet=True)
            )
            return
        except Busy:
            time.sleep(LOOK_AGAIN)
