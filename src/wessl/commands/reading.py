"""A verb's words, read by tyro; where it finds a mistake, the mistake in a sentence."""

import contextlib
import difflib
import io
import re
import sys
import typing
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeVar

import tyro

from wessl.commands.flags import Flag, alternatives, fits, flags_of, in_words, of_each
from wessl.errors import UserError, did_you_mean

T = TypeVar("T")
LISTED = {"pretrain": "--help-all"}
"""Where all flags of a verb are told, if not under ``--help``."""
ALIKE = 0.75
"""Of 1, how much a word has to be like another to be taken for it misspelt."""


def read(kind: type[T], words: Sequence[str], verb: str, default: T | None = None) -> T:
    """The words as a ``kind``, on top of ``default``.

    ::

        read(Doctor, ["--json"], "doctor")
    """
    more: dict[str, Any] = {} if default is None else {"default": default}
    with in_sentences(kind, words, verb, default), plain_help(words):
        return typing.cast(T, tyro.cli(kind, args=words, prog=f"wessl {verb}", **more))


def read_some(
    kind: type[T], words: Sequence[str], verb: str, default: T | None = None
) -> tuple[T, list[str]]:
    """And the words that are none of its flags."""
    more: dict[str, Any] = {} if default is None else {"default": default}
    prog = f"wessl {verb}"
    with in_sentences(kind, words, verb, default, strict=False):
        return tyro.cli(kind, args=words, prog=prog, return_unknown_args=True, **more)


@contextlib.contextmanager
def plain_help(words: Sequence[str]) -> Iterator[None]:
    """tyro's help without what only says that nothing was set, and in the columns it had."""
    if not {"-h", "--help"} & set(words):
        yield
        return
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said):
            yield
    finally:
        sys.stdout.write(without_nothing(said.getvalue()))


def without_nothing(text: str) -> str:
    """Each line as long as before, but for blanks at its end.

    >>> without_nothing("-o {None}|STR, --to {None}|STR  A file. (default: None) |")
    '-o STR, --to STR                A file.                 |'
    """

    def shorter(found: re.Match[str]) -> str:
        words = re.sub(r"\{None\}\|", "", found[0])
        words = re.sub(r"\[(\w+) \[\1 \.\.\.\]\]", r"\1 ...", words)
        return words.ljust(len(found[0]))

    text = re.sub(r"^\W*-\w?.*?(?=  |$)", shorter, text, flags=re.MULTILINE)  # flags and values
    text = re.sub(r"^\W*\(default: (None)?\)\W*\n", "", text, flags=re.MULTILINE)
    text = re.sub(r"\(default: (None)?\)", lambda found: " " * len(found[0]), text)
    return re.sub(r" +$", "", text, flags=re.MULTILINE)


@contextlib.contextmanager
def in_sentences(
    kind: Any, words: Sequence[str], verb: str, default: Any, strict: bool = True
) -> Iterator[None]:
    """Says what tyro stumbled over in our words, or in its own where we find nothing."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            yield
    except SystemExit as end:
        if end.code == 2:
            found = mistake(words, verb, list(flags_of(kind, default)), strict)
            if found is not None:
                raise UserError(found) from None
        sys.stderr.write(said.getvalue())
        raise


def mistake(words: Sequence[str], verb: str, flags: list[Flag], strict: bool = True) -> str | None:
    """The first thing wrong; unless ``strict``, flags and places we do not know may be others'."""
    known = {spelt: flag for flag in flags for spelt in flag.spellings()}
    places = [flag for flag in flags if flag.positional]
    seen: set[str] = set()
    loose: list[str] = []
    for given, values in grouped(words):
        flag = known.get(plain(given))
        if flag is None and given:
            if strict:
                return unknown(given, known, verb)
            continue
        if flag is None:
            loose += values
            continue
        seen.add(flag.name)
        taken = 0 if flag.kind is bool else len(values) if flag.many else 1
        if not values and taken:
            what = in_words(of_each(flag.kind))
            return f"{given} needs a value" + f", {what}" * (what != "words")
        for word in values[:taken]:
            if not fits(word, of_each(flag.kind)):
                return wrong(given, word, of_each(flag.kind))
        loose += values[taken:]
    return surplus(loose, places, verb, strict) or missing(loose, places, seen, flags, verb)


def grouped(words: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each flag and the words after it; those before the first flag come with none.

    >>> list(grouped(["a", "--n=3", "b", "--x", "-1"]))
    [('', ['a']), ('--n', ['3', 'b']), ('--x', ['-1'])]
    """
    flag, values = "", list[str]()
    for word in words:
        if word.startswith("-") and len(word) > 1 and not fits(word, float):
            if flag or values:
                yield flag, values
            flag, equals, value = word.partition("=")
            values = [value] * bool(equals)
        else:
            values.append(word)
    if flag or values:
        yield flag, values


def plain(flag: str) -> str:
    return flag.replace("_", "-")


def unknown(given: str, known: Iterable[str], verb: str) -> str:
    # With their dashes, which all have, words would be more like each other than they are.
    names = {name.lstrip("-"): name for name in known if name.startswith("-")}
    near = difflib.get_close_matches(plain(given).lstrip("-"), names, 1, ALIKE)
    meant = f"did you mean {names[near[0]]}? " if near else ""
    return f"unknown flag {given}; {meant}wessl {verb} {LISTED.get(verb, '--help')} lists them"


def wrong(given: str, word: str, kind: Any) -> str:
    names = [
        str(name)
        for one in alternatives(kind)
        if typing.get_origin(one) is Literal
        for name in typing.get_args(one)
    ]
    meant = did_you_mean(word, names, ALIKE)
    return f"{given} must be {in_words(kind)}, not {word!r}; {meant}".rstrip("; ")


def surplus(loose: list[str], places: list[Flag], verb: str, strict: bool) -> str | None:
    if not strict or any(place.many for place in places) or len(loose) <= len(places):
        return None
    takes = " and ".join(f"one {place.name}" for place in places) or "flags alone"
    return f"{loose[len(places)]} is one word too many: wessl {verb} takes {takes}"


def missing(
    loose: list[str], places: list[Flag], seen: set[str], flags: list[Flag], verb: str
) -> str | None:
    lack = [flag for flag in places[len(loose) :] if flag.required]
    lack += [f for f in flags if f.required and not f.positional and f.name not in seen]
    if lack:
        names = " and ".join(wanted(flag) for flag in lack)
        return f"{verb} needs {names}; wessl {verb} --help explains"
    for place, word in zip(places, loose, strict=False):
        if not fits(word, of_each(place.kind)):
            return wrong(f"the word after {verb}", word, of_each(place.kind))
    return None


def wanted(flag: Flag) -> str:
    """Its name, and what it may hold where that can be counted."""
    named = any(typing.get_origin(kind) is Literal for kind in alternatives(flag.kind))
    return f"{flag.name} ({in_words(flag.kind)})" if named else flag.name
