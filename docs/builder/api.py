"""``docs/api.md``: every public name with its signature and docstring, from the source itself.

Signatures are taken as they are written, not as an interpreter prints them, so that the page is the
same under every version of Python.
"""

import ast
import inspect
import re
import textwrap
from importlib import import_module
from types import ModuleType
from typing import Any

import wessl

GROUPS = {
    "From pictures to numbers": (
        "pack",
        "pretrain",
        "load",
        "embed",
        "classify",
        "evaluate",
        "diversity",
        "report",
        "study",
        "export",
        "bench",
    ),
    "Heads and losses": (
        "EnsembleHeads",
        "ensemble_loss",
        "multiview_loss",
        "multiview_loss_by_view",
        "head_shares",
        "ensemble_weights",
        "Weighting",
    ),
    "Targets": ("sinkhorn", "Centering", "sharpen", "me_max"),
    "Encoders": ("Encoder", "ViT", "ConvNet"),
    "On features": ("knn", "logistic"),
}
"""What belongs together; a name that is in none of them comes last."""

FIRST = """\
<!-- fmt: off -->
# API reference

Everything in `wessl.__all__`, by purpose, made from the source by `make api`. These names are
stable; what is not here may change. Shapes: `b` or `n` images, `m` heads, `c` codes, `V` student
views, `U` teacher views.
"""


def page() -> str:
    """The whole page, as Markdown."""
    known = {name for names in GROUPS.values() for name in names}
    rest = tuple(n for n in wessl.__all__ if n not in known and n != "__version__")
    parts = [FIRST]
    for title, names in {**GROUPS, "More": rest}.items():
        parts.append(f"## {title}\n")
        parts += [describe(name) for name in names if name in wessl.__all__]
    return "\n".join(parts).rstrip() + "\n"


def describe(name: str) -> str:
    thing = find(name)
    node = ast.parse(textwrap.dedent(inspect.getsource(thing))).body[0]
    if isinstance(node, ast.ClassDef):
        return _class(name, node, thing)
    assert isinstance(node, ast.FunctionDef)
    return f"### {name}\n\n{_fence(_signature(f'wessl.{name}', node))}\n\n{_text(node)}\n"


def find(name: str) -> Any:
    """What a public name stands for; of a verb that shares its name with a room, the function."""
    thing = getattr(wessl, name)
    if isinstance(thing, ModuleType):
        return getattr(import_module(f"wessl.verbs.{name}"), name)
    return thing


def _class(name: str, node: ast.ClassDef, thing: Any) -> str:
    made = [part for part in node.body if isinstance(part, ast.FunctionDef)]
    init = next((part for part in made if part.name == "__init__"), None)
    fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
    called = f"wessl.{name}"
    if init is not None:
        head = _signature(called, init, method=True)
    elif hasattr(thing, "__dataclass_fields__"):
        head = _call(called, [ast.unparse(part) for part in fields], "")
    else:
        head = f"class {called}"
    lines = [f"### {name}\n", _fence(head), "", _text(node), ""]
    for part in made:
        if part.name.startswith("_") or not ast.get_docstring(part):
            continue
        if any(ast.unparse(mark) == "property" for mark in part.decorator_list):
            said = f"{name}.{part.name}"
        else:
            said = _signature(f"{name}.{part.name}", part, method=True)
        lines += [_fence(said), "", _text(part), ""]
    return "\n".join(lines)


def _signature(called: str, node: ast.FunctionDef, method: bool = False) -> str:
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
    said = [_argument(a, d) for a, d in zip(plain, defaults, strict=True)]
    if method and plain and plain[0].arg in ("self", "cls"):
        said = said[1:]
    if given.vararg:
        said.append("*" + _argument(given.vararg, None))
    elif given.kwonlyargs:
        said.append("*")
    said += [_argument(a, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    if given.kwarg:
        said.append("**" + _argument(given.kwarg, None))
    returns = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    return _call(called, said, "" if node.name == "__init__" else returns)


def _argument(argument: ast.arg, default: ast.expr | None) -> str:
    hint = "" if argument.annotation is None else f": {ast.unparse(argument.annotation)}"
    equals = " = " if hint else "="
    return argument.arg + hint + ("" if default is None else equals + ast.unparse(default))


def _call(called: str, said: list[str], returns: str) -> str:
    line = f"{called}({', '.join(said)}){returns}"
    if len(line) <= 88:
        return line
    return f"{called}(\n" + "".join(f"    {one},\n" for one in said) + f"){returns}"


def _fence(code: str, language: str = "py") -> str:
    return f"```{language}\n{code}\n```"


def _text(node: ast.FunctionDef | ast.ClassDef) -> str:
    return markdown(ast.get_docstring(node) or "")


def markdown(docstring: str) -> str:
    """Our docstrings as Markdown: double quotes of code, examples, and what follows ``::``."""
    said: list[str] = []
    blocks = re.split(r"\n\s*\n", docstring)
    code_follows = False
    for i, block in enumerate(blocks):
        if block.lstrip().startswith(">>>"):
            said.append(_fence(textwrap.dedent(block), "pycon"))
        elif code_follows and block.startswith("    "):
            if i and said[-1].endswith("\n```") and said[-1].startswith("```py\n"):
                said[-1] = said[-1].removesuffix("\n```") + f"\n\n{textwrap.dedent(block)}\n```"
            else:
                said.append(_fence(textwrap.dedent(block)))
            continue
        elif block.startswith("Args:"):
            said.append(_arguments(block))
        else:
            prose = block.rstrip()
            code_follows = prose.endswith("::")
            prose = prose.removesuffix("::").rstrip() + (":" if code_follows else "")
            said += [re.sub(r"``(.+?)``", r"`\1`", prose, flags=re.S)] if prose != ":" else []
            continue
        code_follows = False
    return "\n\n".join(said)


def _arguments(block: str) -> str:
    """
    >>> print(_arguments("Args:\\n    out: Folder.\\n    seeds: How often\\n        each."))
    - `out`: Folder.
    - `seeds`: How often each.
    """
    listed: list[str] = []
    for line in textwrap.dedent(block.partition("\n")[2]).splitlines():
        name, _, words = line.partition(":")
        if line.startswith(" "):
            listed[-1] += f" {line.strip()}"
        else:
            listed.append(f"- `{name}`: {words.strip()}")
    return "\n".join(listed)


if __name__ == "__main__":
    print(page(), end="")
