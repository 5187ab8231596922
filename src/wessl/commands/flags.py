"""The flags that a dataclass of settings gives, and what each may hold."""

import dataclasses
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro


@dataclass(frozen=True)
class Flag:
    """One that may be given: ``--to``, or a place in the row of words, called by its metavar."""

    name: str
    kind: Any
    required: bool = False
    positional: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def many(self) -> bool:
        """Whether it takes as many values as there are."""
        return any(typing.get_origin(kind) is tuple for kind in alternatives(self.kind))

    def spellings(self) -> Iterator[str]:
        yield self.name
        yield from self.aliases
        if self.kind is bool:
            group, dot, last = self.name.removeprefix("--").rpartition(".")
            yield f"--{group}{dot}no-{last}"


def flags_of(kind: Any, default: Any = None, prefix: str = "") -> Iterator[Flag]:
    """In their order; those of views, of which there may be any number, come from ``default``."""
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        plain, notes = split(hints[field.name])
        name = prefix + field.name.replace("_", "-")
        value = getattr(default, field.name, None)
        if dataclasses.is_dataclass(plain):
            flat = tyro.conf.OmitArgPrefixes in notes
            yield from flags_of(plain, value, prefix if flat else f"{name}.")
        elif isinstance(value, tuple) and value and dataclasses.is_dataclass(value[0]):
            for i, one in enumerate(value):
                yield from flags_of(type(one), one, f"{name}.{i}.")
        else:
            nothing = field.default is field.default_factory is dataclasses.MISSING
            yield _flag(name, plain, notes, required=nothing and default is None)


def _flag(name: str, plain: Any, notes: tuple[Any, ...], required: bool) -> Flag:
    about = [(getattr(n, "metavar", None), getattr(n, "aliases", None) or ()) for n in notes]
    if tyro.conf.Positional in notes:
        metavar = next((metavar for metavar, _ in about if metavar), name.upper())
        return Flag(metavar, plain, required, positional=True)
    return Flag(f"--{name}", plain, required, aliases=tuple(a for _, many in about for a in many))


def split(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type without its notes, and them."""
    if typing.get_origin(kind) is Annotated:
        plain, *notes = typing.get_args(kind)
        return plain, tuple(notes)
    return kind, ()


def alternatives(kind: Any) -> tuple[Any, ...]:
    """
    >>> alternatives(float | None)
    (<class 'float'>,)
    """
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return tuple(one for one in typing.get_args(kind) if one is not type(None))
    return (kind,)


def may_be_none(kind: Any) -> bool:
    return type(None) in typing.get_args(kind)


def of_each(kind: Any) -> Any:
    """The type of every value of a flag that takes many; that of the one otherwise."""
    for one in alternatives(kind):
        if typing.get_origin(one) is tuple:
            return typing.get_args(one)[0]
    return kind


def fits(word: str, kind: Any) -> bool:
    """Whether a word can be read as a value of a type."""
    if word == "None" and may_be_none(kind):
        return True
    return any(_fits(word, one) for one in alternatives(kind))


def _fits(word: str, kind: Any) -> bool:
    if typing.get_origin(kind) is Literal:
        return word in map(str, typing.get_args(kind))
    if kind not in (int, float):
        return True
    try:
        kind(word)
    except ValueError:
        return False
    return True


def in_words(kind: Any) -> str:
    """
    >>> in_words(int | Literal["auto"]), in_words(Literal["timm", "hf", "onnx"])
    ('a whole number or auto', 'timm, hf or onnx')
    >>> in_words(Literal["projection", "codebook"] | None), in_words(float | None)
    ('projection, codebook or None', 'a number')
    """
    named = {int: "a whole number", float: "a number"}
    said: list[str] = []
    for one in alternatives(kind):
        is_literal = typing.get_origin(one) is Literal
        said += map(str, typing.get_args(one)) if is_literal else [named.get(one, "words")]
    if is_literal and may_be_none(kind):  # whoever wants a number does not think of None
        said.append("None")
    return " or ".join([", ".join(said[:-1]), said[-1]] if len(said) > 1 else said)
