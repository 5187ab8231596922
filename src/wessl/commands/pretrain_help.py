"""``wessl pretrain --help``, what most people need, and ``--help-all``, every setting."""

import contextlib
import dataclasses
import sys
from dataclasses import make_dataclass
from typing import Any, NoReturn

import tyro

from wessl.config import Config
from wessl.recipes import FAMILIES, names, recipe, unknown

FEW = """\
usage: wessl pretrain DATA --out RUN [...]

Train an encoder on unlabelled pictures. The same command again resumes.

  DATA                   folder of pictures, list of paths, .npz, tar shards, hf://name
  --out RUN              the run folder to write
  --budget TIME          fit into 20m or 2h; or --epochs N, passes over the pictures
  --recipe NAME          auto (default): 16 heads, entropy-weighted, sized to the data;
                         dino-star, msn-star-ent ... sized too; .../vits16 as published
  --init WEIGHTS         start from a run, or from DINO, DINOv2, MSN, timm weights
  --probe DATA           labelled pictures for k-NN on the way (default: DATA's labels)
  --device NAME          auto (a GPU if there is one), cpu, cuda, cuda:1
  --devices N            processes, one a GPU of this machine; auto: all (default: 1;
                         with --device cpu: CPU processes)
  --seed N               of every random draw (default: 0)
  --keep N               checkpoints kept (2, then 1); --save-every SECONDS between them
                         (default: a tenth of the run, or about 300)
  --cache FOLDER         where decoded pictures are kept; --decode stream keeps none
  --track NAME           tensorboard, wandb, trackio: curves there too

Settings that the recipe chooses, and prints with the reason:

  --encoder.size         T, S, B or L; --encoder.kind conv for small pictures
  --encoder.image-size   side of the large views; smaller is quicker
  --encoder.patch-size   pixels
  --heads.count          heads; --heads.codes, codes of each
  --loss.weighting       unif, prob, ent, ...
  --optim.batch-size     pictures a step; --optim.accumulate N saves memory
  --optim.lr             peak learning rate, as used
  --precision            fp32 or bf16

  --help-all             every setting, with the values of --recipe NAME"""


def show_few() -> NoReturn:
    print(FEW)
    sys.exit(0)


def show_all(verb: Any, words: list[str]) -> NoReturn:
    """The verb's flags, then every setting with a recipe's values."""
    asked = asked_recipe(words)
    shown = recipe(family_of(asked))
    settings = make_dataclass(
        "Settings",
        [(f.name, f.type, f) for f in dataclasses.fields(Config) if f.name != "recipe"],
    )
    settings.__doc__ = f"Settings on top of the recipe. Shown are the values of {shown.recipe}"
    if asked in names():
        settings.__doc__ += "."
    else:
        settings.__doc__ += (
            f", from which --recipe {asked} starts; it sizes many of them to your pictures and "
            "device, and prints each with its reason. --recipe NAME --help-all shows another's."
        )
    values = settings(**{f.name: getattr(shown, f.name) for f in dataclasses.fields(settings)})
    with contextlib.suppress(SystemExit):
        tyro.cli(verb, args=["--help"], prog="wessl pretrain")
    tyro.cli(settings, args=["--help"], prog="wessl pretrain DATA --out RUN", default=values)
    sys.exit(0)


def family_of(asked: str) -> str:
    """The name under which a recipe that may be sized to the data has its published values.

    >>> family_of("auto"), family_of("msn-star/auto"), family_of("dino/vitb8")
    ('dino-star-ent', 'msn-star', 'dino/vitb8')
    """
    family = "dino-star-ent" if asked == "auto" else asked.removesuffix("/auto")
    if family not in (*FAMILIES, *names()):
        raise unknown(asked, [*FAMILIES, *names(), "auto"])
    return family


def asked_recipe(words: list[str]) -> str:
    """
    >>> asked_recipe(["photos/", "--recipe", "msn/vitb16", "--help-all"])
    'msn/vitb16'
    """
    for i, word in enumerate(words):
        if word.startswith("--recipe="):
            return word.removeprefix("--recipe=")
        if word == "--recipe" and i + 1 < len(words) and not words[i + 1].startswith("-"):
            return words[i + 1]
    return "auto"
