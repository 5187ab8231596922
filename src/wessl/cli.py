"""The command line: one verb a capability.

What is asked is read and checked before what a verb needs is imported: mistakes are told at once.
"""

import contextlib
import os
import select
import signal
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import FrameType
from typing import NoReturn

from wessl._version import __version__
from wessl.allocator import keep_memory
from wessl.devices import wait_briefly
from wessl.errors import Interrupted, UserError, did_you_mean


def help_text() -> str:
    lines = [
        "wessl: image encoders from unlabelled pictures, by a weighted ensemble of heads.",
        "",
        "usage: wessl VERB [...]      wessl VERB --help explains one",
        "",
        *(f"  {name:<10} {line}" for name, line in VERBS.items()),
        "",
        "  --version  print the version",
        "  --help     print this",
    ]
    return "\n".join(lines)


def main(words: Sequence[str] | None = None) -> NoReturn:
    """Exit code 0 for success, 2 for a user's mistake, 1 for a failure, 128 + n for signal n."""
    try:
        answer(list(sys.argv[1:] if words is None else words))
    except SystemExit as end:
        launched = sys.modules.get("wessl.verbs.launching.launched")
        if end.code and launched is not None and launched.in_a_team:
            launched.leave(int(end.code))
        raise


def answer(words: list[str]) -> NoReturn:
    wait_briefly(os.environ)
    keep_memory()
    if not words or words[0] in ("-h", "--help", "help"):
        print(help_text())
        sys.exit(0)
    if words[0] in ("-V", "--version"):
        print(f"wessl {__version__}")
        sys.exit(0)
    if words[0] not in VERBS:
        meant = did_you_mean(words[0], VERBS)
        there = "There are" if meant else "choose one of"
        fail(f"unknown verb {words[0]!r}; {meant}{there} {', '.join(VERBS)}")
    try:
        asked = import_module(f"wessl.commands.{words[0]}").parse(words[1:])
        with held_signals():
            verb = import_module(f"wessl.verbs.{words[0]}")
        verb.command(asked)
    except UserError as error:
        fail(str(error), error.exit_code)
    except Interrupted as stopped:
        fail(str(stopped), 128 + stopped.signum)
    except KeyboardInterrupt:
        fail("stopped by SIGINT at once", 128 + signal.SIGINT)
    except BrokenPipeError:
        if printing_is_heard():  # another pipe, then, and a fault
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    sys.exit(0)


def printing_is_heard() -> bool:
    """Whether somebody still reads what is printed; `head` stops when it has read enough."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return not any(event & select.POLLERR for _, event in output.poll(0))


@contextlib.contextmanager
def held_signals() -> Iterator[None]:
    """Signals to stop wait for the end of an import, which may swallow exceptions.

    From then on SIGTERM is an exception, as Ctrl-C is, so that everything under way cleans up.
    SIGUSR1, which asks a training to save itself, does nothing as long as there is none.
    """
    held: list[int] = []

    def hold(signum: int, frame: FrameType | None) -> None:
        held.append(signum)

    try:
        signal.signal(signal.SIGINT, hold)
        signal.signal(signal.SIGTERM, hold)
        signal.signal(signal.SIGUSR1, lambda signum, frame: None)
    except ValueError:  # not the main thread: the caller keeps its handlers
        yield
        return
    yield
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, stop)
    if held:
        stop(held[0], None)


def stop(signum: int, frame: FrameType | None) -> NoReturn:
    raise Interrupted(signum, "at once")


def fail(message: str, code: int = 2) -> NoReturn:
    print(f"wessl: {message}", file=sys.stderr)
    sys.exit(code)


VERBS = {
    "bench": "measure steps, views, loader and few-shot sweep on this machine",
    "classify": "label all pictures from a handful of labelled ones",
    "completion": "print a script for the shell that completes verbs, flags and files",
    "demo": "learn from built-in pictures and show what was learnt (minutes, no GPU)",
    "diversity": "compare what a run's heads learnt, pair by pair",
    "doctor": "versions, devices, what is missing, a speed check, what to report",
    "embed": "write the features of pictures into a file",
    "evaluate": "measure encoders with few labels, many, and on other datasets",
    "export": "write an encoder for timm, Hugging Face or ONNX, with a model card",
    "pack": "write pictures into tar shards that are quick to read, from anywhere",
    "pretrain": "train an encoder on a folder of pictures",
    "report": "write one page about a run, or several compared",
    "study": "the paper's tables and figures, on your pictures",
}
"""Each verb's one line. ``commands/VERB.py`` reads its words, ``verbs/VERB.py`` does it."""
