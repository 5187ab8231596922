"""The command line: one verb a capability. What a verb needs is imported when it is called."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, make_dataclass
from importlib import import_module
from typing import Annotated, Any, NamedTuple, NoReturn

from wessl._version import __version__
from wessl.errors import UserError


class Verb(NamedTuple):
    """The function that does it, given the rest of the words, and its one line."""

    run: Callable[[list[str]], None]
    line: str


def help_text() -> str:
    lines = [
        "wessl: image encoders from unlabelled pictures, by a weighted ensemble of heads.",
        "",
        "usage: wessl VERB [...]      wessl VERB --help explains one",
        "",
        *(f"  {name:<10} {verb.line}" for name, verb in VERBS.items()),
        "",
        "  --version  print the version",
        "  --help     print this",
    ]
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> NoReturn:
    """Exit code 0 for success, 2 for a user's mistake, 1 for a failure of ours."""
    words = list(sys.argv[1:] if words is None else words)
    # Threads that spin while they wait make a small step twenty times slower beside a busy core.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if not words or words[0] in ("-h", "--help", "help"):
        print(help_text())
        sys.exit(0)
    if words[0] in ("-V", "--version"):
        print(f"wessl {__version__}")
        sys.exit(0)
    if words[0] not in VERBS:
        fail(f"unknown verb {words[0]!r}; choose one of {', '.join(VERBS)}")
    try:
        VERBS[words[0]].run(words[1:])
    except UserError as error:
        fail(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)


def fail(message: str) -> NoReturn:
    print(f"wessl: {message}", file=sys.stderr)
    sys.exit(2)


def pretrain(words: list[str]) -> None:
    """Two passes over the words: first which recipe and data, then settings on top of it."""
    import tyro

    from wessl.config import Config, Options

    @dataclass(frozen=True)
    class Pretrain:
        """Train an encoder on unlabelled pictures. The same command again resumes."""

        data: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
        """A folder of pictures, a text file of paths, an .npz, or builtin://digits."""
        out: str
        """The run folder to write."""
        recipe: str = "auto"
        """auto; a method sized to the data (dino-star-ent); or as published (.../vits16)."""
        budget: str | None = None
        """Time to fit in, such as 20m or 2h."""
        running: tyro.conf.OmitArgPrefixes[Options] = field(default_factory=Options)

    if any(word in ("-h", "--help") for word in words):
        show_help(Pretrain, Config)
    asked, rest = tyro.cli(Pretrain, args=words, prog="wessl pretrain", return_unknown_args=True)
    api: Any = import_module("wessl.api")
    loop: Any = import_module("wessl.pretrain.loop")
    console = import_module("wessl.pretrain.console").Console()

    def change(config: Config) -> Config:
        return tyro.cli(Config, args=rest, default=config, prog="wessl pretrain DATA --out RUN")

    request = dict(recipe=asked.recipe, budget=asked.budget, changes=rest)
    try:
        run = api.pretrain_with(asked.data, asked.out, asked.running, request, change, console)
    except loop.Interrupted as stopped:
        print(f"wessl: {stopped}; the same command goes on from there", file=sys.stderr)
        sys.exit(128 + stopped.signum)
    print(f"encoder: {run.path / 'encoder.safetensors'}")


def show_help(verb: Any, config: Any) -> NoReturn:
    """The verb's own flags, then every setting of the config with the default recipe's values."""
    import tyro

    settings = make_dataclass(
        "Settings",
        [(f.name, f.type, f) for f in dataclasses.fields(config) if f.name != "recipe"],
    )
    settings.__doc__ = "Settings on top of the recipe; shown are the values of dino-star/vits16."
    shown = import_module("wessl.recipes").recipe("dino-star/vits16")
    values = settings(**{f.name: getattr(shown, f.name) for f in dataclasses.fields(settings)})
    with contextlib.suppress(SystemExit):
        tyro.cli(verb, args=["--help"], prog="wessl pretrain")
    tyro.cli(settings, args=["--help"], prog="wessl pretrain DATA --out RUN", default=values)
    sys.exit(0)


def demo(words: list[str]) -> None:
    import tyro

    run: Any = import_module("wessl.demo")
    tyro.cli(run.demo, args=words, prog="wessl demo")


VERBS = {
    "demo": Verb(demo, "learn from built-in pictures and show what was learnt (minutes, no GPU)"),
    "pretrain": Verb(pretrain, "train an encoder on a folder of pictures"),
}
