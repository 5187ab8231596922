"""The documentation keeps its word: its code runs, its flags and links exist, its fences close."""

import re
import shlex
import textwrap
from importlib import import_module
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

import pytest
from docs.builder import api

from wessl.cli import VERBS
from wessl.errors import UserError
from wessl.verbs.completion import flags_of

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(r"^\s*(?P<ticks>`{3,}|~{3,})\s*(?P<language>[\w+-]*)(?P<rest>.*)$")
INLINE_CODE = re.compile(r"(`+).+?\1")
TARGETS = (
    re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)"),  # [text](target "title") and ![alt](target)
    re.compile(r"^\s*\[[^\]]+\]:\s*<?([^\s>]+)>?"),  # [name]: target
    re.compile(r"\b(?:src|href)\s*=\s*[\"']([^\"']+)[\"']"),  # <img src="target">
)


class Block(NamedTuple):
    language: str
    line: int  # of its first line of code, from 1
    code: str


class Page(NamedTuple):
    blocks: list[Block]
    prose: list[tuple[int, str]]  # numbered lines outside the fences
    open_fence: int | None  # the line of a fence that never closes


def read(path: Path) -> Page:
    blocks, prose = [], []
    ticks, language, start, code = "", "", 0, []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = FENCE.match(line)
        if not ticks:
            if fence and "`" not in fence["rest"]:
                ticks, language, start, code = fence["ticks"], fence["language"], number, []
            else:
                prose.append((number, line))
        elif fence and fence["ticks"].startswith(ticks) and not fence["language"] + fence["rest"]:
            blocks.append(Block(language, start + 1, textwrap.dedent("\n".join(code))))
            ticks = ""
        else:
            code.append(line)
    return Page(blocks, prose, start if ticks else None)


def run(path: Path) -> None:
    """All Python blocks of a page in one namespace, with the page's own lines in a traceback."""
    namespace = {"__name__": "__main__"}
    for block in read(path).blocks:
        if block.language == "python":
            padded = "\n" * (block.line - 1) + block.code
            exec(compile(padded, str(path), "exec"), namespace)


def broken_targets(path: Path) -> list[str]:
    broken = []
    for number, line in read(path).prose:
        plain = INLINE_CODE.sub("code", line)
        for target in (match[1] for pattern in TARGETS for match in pattern.finditer(plain)):
            if re.match(r"[a-zA-Z][\w+.-]*:|//", target):
                continue
            file, _, anchor = target.partition("#")
            aim = path.parent / unquote(file) if file else path
            if not aim.exists() or (anchor and anchor not in headings(aim)):
                broken.append(f"{path}:{number}: {target}")
    return broken


def headings(path: Path) -> set[str]:
    """The anchors that GitHub makes of a page's headings."""
    titles = [line.lstrip("#") for _, line in read(path).prose if re.match(r"#+ ", line)]
    return {re.sub(r"[^\w -]", "", title.strip().lower()).replace(" ", "-") for title in titles}


def wessl_commands(path: Path) -> list[list[str]]:
    """The words after ``wessl`` of every command in the page's shell blocks and its prose."""
    page = read(path)
    shell = [b.code.replace("\\\n", " ") for b in page.blocks if b.language in ("bash", "sh")]
    lines = [line for code in shell for line in code.splitlines()]
    lines += re.findall(r"`([^`]+)`", "\n".join(line for _, line in page.prose))
    words = [shlex.split(line, comments=True) for line in lines if re.match(r"(\S+/)?wessl ", line)]
    return [line[1:] for line in words if line[1][0].islower()]


def test_commands_are_found_where_they_stand(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "Try `wessl demo --out x`.\n```bash\n.venv/bin/wessl study heads \\\n  a # b\n```\n"
    )
    assert wessl_commands(page) == [["study", "heads", "a"], ["demo", "--out", "x"]]


def shell_commands(path: Path) -> list[list[str]]:
    """The words after ``wessl`` in the page's shell blocks, started by whatever comes before."""
    found = []
    for block in read(path).blocks:
        if block.language not in ("bash", "sh"):
            continue
        for line in block.code.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            at = [i for i, word in enumerate(words) if Path(word).name == "wessl"]
            at = [i for i in at if i == 0 or words[i - 1] == "-m" or "=" in words[i - 1]]
            if at and len(words) > at[0] + 1:
                rest = words[at[0] + 1 :]
                ends = [
                    i for i, word in enumerate(rest) if word in ("|", "&&", "||", ";", ">", "&")
                ]
                found.append(rest[: ends[0]] if ends else rest)
    return found


def parsed(verb: str, words: list[str]) -> None:
    """As the command line reads them, values and all; a path need not be there."""
    try:
        import_module(f"wessl.commands.{verb}").parse(words)
    except UserError as error:
        if "does not exist" not in str(error):
            raise
    except SystemExit as left:
        if left.code:
            raise AssertionError(f"wessl {verb} {shlex.join(words)} is refused") from left


def test_commands_are_read_with_their_values(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```bash\nA=1 wessl demo --seeds 1 && echo\ntorchrun -m wessl evaluate r \\\n  --draws 3\n"
        "cd wessl\n```\n"
    )
    assert shell_commands(page) == [["demo", "--seeds", "1"], ["evaluate", "r", "--draws", "3"]]
    parsed("evaluate", ["gone", "--train", "gone"])
    for wrong in (["--draws", "three"], ["--select", "best"], ["--draws", "0"]):
        with pytest.raises((AssertionError, UserError)):
            parsed("evaluate", ["gone", "--train", "gone", *wrong])


every_page = pytest.mark.parametrize("path", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())


@every_page
def test_every_python_block_runs_in_order(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WESSL_CACHE", str(tmp_path / "cache"))
    run(path)


@every_page
def test_every_relative_link_and_picture_exists(path):
    assert broken_targets(path) == []


@every_page
def test_every_command_has_a_verb_and_flags_that_exist(path):
    for verb, *words in wessl_commands(path):
        assert verb in VERBS
        flags = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
        assert set(flags) <= set(flags_of(verb)), f"wessl {verb} {' '.join(words)}"


@every_page
def test_every_command_in_a_shell_block_is_accepted_by_its_verb(path):
    for verb, *words in shell_commands(path):
        parsed(verb, words)


def test_the_api_reference_is_fresh():
    written = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    assert written == api.page(), "docs/api.md differs from the source: run `make api`"


def test_the_site_has_every_page_and_no_broken_link(tmp_path):
    pytest.importorskip("mdit_py_plugins", reason="only `make docs` installs it")
    pytest.importorskip("latex2mathml")
    from docs.builder.__main__ import BrokenLink, Site

    site = Site()
    site.write(tmp_path)
    assert len(site.pages) > len(PAGES)
    page = (tmp_path / "losses.html").read_text(encoding="utf-8")
    assert "<math" in page
    assert "$$" not in page
    site.pages["docs/faq.md"].links.append("nowhere.md")
    with pytest.raises(BrokenLink, match=r"docs/faq.md: nowhere.md"):
        site.write(tmp_path)


@every_page
def test_every_fence_is_closed(path):
    unclosed = read(path).open_fence
    assert unclosed is None, f"{path}:{unclosed}: this fence never closes"


def test_a_failing_block_is_named_by_page_and_line(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```bash\nfalse\n```\n\n```python\nx = 1\nassert x == 2\n```\n")
    with pytest.raises(AssertionError) as failure:
        run(page)
    last = failure.traceback[-1]
    assert (str(last.path), last.lineno + 1) == (str(page), 9)


def test_broken_links_and_open_fences_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# Top\n[here](page.md#top) [web](https://example.org) [gone](gone.md) [low](#bottom)\n"
        '<img src="gone.png">\n`[code](not-a-link.md)`\n```text\n[fenced](not-a-link.md)\n'
    )
    broken = [f"{page}:2: gone.md", f"{page}:2: #bottom", f"{page}:3: gone.png"]
    assert broken_targets(page) == broken
    assert read(page).open_fence == 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_placeholder_is_left(page):
    left = [text for _, text in read(page).prose if re.fullmatch(r"[A-Z]+_[A-Z_]+", text.strip())]
    assert left == []
